"""What `runconsumer` looks at before it starts anything: whether Redis can be reached, and will do."""

from collections.abc import Sequence

from mq_django.conf import QueueConfig
from mq_django.consumers.supervisor.signal_pipe import STOPS, SignalPipe
from mq_django.core.logs import get_logger
from mq_django.errors import ConfigurationError, ConnectionLost, ConnectionRejected, NotPermitted, StoreError
from mq_django.stores import open_store
from mq_django.transport.capabilities import examine
from mq_django.transport.connections import get_client, open_session
from mq_django.transport.sessions import Session

logger = get_logger(__name__)

#: Seconds between two attempts to reach Redis.
RETRY_AFTER = 1.0


def await_server(signals: SignalPipe) -> bool:
    """Wait until Redis can be reached, and return whether it can: False when asked to stop.

    Raises:
        ConnectionRejected: the server and CONNECTION do not fit, and waiting does not help.
    """
    session = open_session("chores")
    has_warned = False
    while True:
        try:
            session.trip([("PING",)])
        except ConnectionLost as error:
            if not has_warned:
                logger.error("%s. Still trying.", str(error).rstrip("."))  # noqa: TRY400 - a sentence says it all
                has_warned = True
        else:
            session.release()
            if has_warned:
                logger.info("Redis can be reached now.")
            return True
        if not STOPS.isdisjoint(signals.wait(RETRY_AFTER)):
            return False


def examine_server(queues: Sequence[QueueConfig]) -> None:
    """Say what about the Redis server endangers messages, and refuse one that would lose them for certain.

    Raises:
        ConfigurationError: messages would be lost, or nothing would work.
        ConnectionRejected: the server and CONNECTION do not fit.
        NotPermitted: the Redis user may use none of the queues.
    """
    client = get_client("chores")
    try:
        findings = examine(client)
    except ConnectionRejected:
        raise
    except StoreError as error:
        logger.warning("Redis could not be examined: %s", error)
        findings = []
    for finding in findings:
        logger.warning("%s", finding.message)
    if fatal := [finding.message for finding in findings if finding.fatal]:
        raise ConfigurationError(" ".join(fatal))
    session = open_session("chores")
    failures = [refusal for config in queues if (refusal := _refusal(config, session)) is not None]
    session.release()
    if failures and len(failures) == len(queues):
        raise failures[0]
    for refusal in failures:
        logger.error("%s", refusal)


def _refusal(config: QueueConfig, session: Session) -> NotPermitted | None:
    """Return the permission that the Redis user lacks in a queue, if any; other trouble is for the services."""
    try:
        open_store(config, session).promote(limit=1)
    except NotPermitted as error:
        return NotPermitted(f"Queue {config.name}: {error}")
    except StoreError:
        pass
    return None
