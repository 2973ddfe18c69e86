"""What `runconsumer` looks at before it starts anything: whether Redis can be reached, and will do."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mq_django.conf import QueueConfig
from mq_django.errors import ConfigurationError, ConnectionLost, ConnectionRejected, NotPermitted, StoreError
from mq_django.stores import open_store
from mq_django.transport.capabilities import examine
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session

logger = logging.getLogger(__name__)

#: Seconds between two attempts to reach Redis.
RETRY_AFTER = 1.0


def await_server() -> bool:
    """Wait until Redis can be reached, and return whether it can: False when asked to stop.

    Raises:
        ConnectionRejected: the server and CONNECTION do not fit, which no waiting mends.
    """
    asked_to_stop = threading.Event()
    session = Session(get_client("chores"))
    told = False
    with _on_signals(asked_to_stop.set):
        while not asked_to_stop.is_set():
            try:
                session.trip([("PING",)])
            except ConnectionLost as error:
                if not told:
                    logger.error("%s. Still trying.", str(error).rstrip("."))  # noqa: TRY400 - a sentence says it all
                    told = True
                asked_to_stop.wait(RETRY_AFTER)
            else:
                session.release()
                if told:
                    logger.info("Redis can be reached now.")
                return True
    return False


@contextmanager
def _on_signals(do: Callable[[], None]) -> Iterator[None]:
    """Do something when asked to stop; the default ends with a traceback, or another code than 0."""
    # With --autoreload this is not the main thread, and the reloader ends the process by itself.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: do()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
