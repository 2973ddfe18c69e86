"""Check that Redis can be reached and is suitable, before `runconsumer` starts anything."""

import math
import time
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
#: Seconds that `--drain` waits for Redis at its start: whoever runs it waits for its end.
PATIENCE = 10.0


def await_server(signals: SignalPipe, *, patience: float = math.inf) -> bool:
    """Wait until Redis can be reached; return False when asked to stop.

    Args:
        patience: the longest time to wait, in seconds.

    Raises:
        ConnectionLost: Redis could not be reached in this time.
        ConnectionRejected: the server does not accept the CONNECTION settings, so waiting does not help.
    """
    session, ends = open_session("chores"), time.monotonic() + patience
    has_warned = False
    while True:
        try:
            session.trip([("PING",)])
        except ConnectionLost as error:
            if time.monotonic() > ends:
                raise
            if not has_warned:
                logger.error("%s. Still trying.", str(error).rstrip("."))  # noqa: TRY400 - the message is enough
                has_warned = True
        else:
            session.release()
            if has_warned:
                logger.info("Redis can be reached now.")
            return True
        if not STOPS.isdisjoint(signals.wait(RETRY_AFTER)):
            return False


def examine_server(queues: Sequence[QueueConfig]) -> None:
    """Log the risks of the Redis server's configuration, and refuse a server that would certainly lose messages.

    Raises:
        ConfigurationError: messages would be lost, or the server lacks a needed command.
        ConnectionRejected: the server does not accept the CONNECTION settings.
        NotPermitted: the Redis user has no permission for any of the queues.
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
    """Return the error if the Redis user lacks a permission in a queue. The services handle all other errors."""
    try:
        open_store(config, session).promote(limit=1)
    except NotPermitted as error:
        return NotPermitted(f"Queue {config.name}: {error}")
    except StoreError:
        pass
    return None
