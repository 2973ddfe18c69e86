"""What `runconsumer` looks at before it starts anything: whether Redis can be reached, and will do."""

from collections.abc import Sequence

from mq_django.conf import QueueConfig
from mq_django.consumers.supervisor.signal_pipe import STOPS, SignalPipe
from mq_django.core.logs import get_logger
from mq_django.errors import ConfigurationError, ConnectionLost, ConnectionRejected, NotPermitted, StoreError
from mq_django.stores import open_store
from mq_django.transport.capabilities import examine
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session

logger = get_logger(__name__)

#: Seconds between two attempts to reach Redis.
RETRY_AFTER = 1.0


def await_server(signals: SignalPipe) -> bool:
    """Wait until Redis can be reached, and return whether it can: False when asked to stop.

    Raises:
        ConnectionRejected: the server and CONNECTION do not fit, which no waiting mends.
    """
    session = Session(get_client("chores"))
    told = False
    while True:
        try:
            session.trip([("PING",)])
        except ConnectionLost as error:
            if not told:
                logger.error("%s. Still trying.", str(error).rstrip("."))  # noqa: TRY400 - a sentence says it all
                told = True
        else:
            session.release()
            if told:
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
        logger.warning("%s", finding.told)
    if fatal := [finding.told for finding in findings if finding.fatal]:
        raise ConfigurationError(" ".join(fatal))
    session = Session(client)
    refusals = [refusal for config in queues if (refusal := _refusal(config, session)) is not None]
    session.release()
    if refusals and len(refusals) == len(queues):
        raise refusals[0]
    for refusal in refusals:
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
