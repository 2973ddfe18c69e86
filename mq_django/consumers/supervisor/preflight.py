"""Check that Redis can be reached and is suitable, before `runconsumer` starts anything."""

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from django.db import Error as DatabaseError
from django.db import connections

from mq_django.conf import QueueConfig, get_config
from mq_django.consumers.service import ServerQueues, by_server, connection_of
from mq_django.consumers.supervisor.supervisor import STOPS, SignalPipe
from mq_django.consumers.supervisor.template import flush, other_threads
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.logs import get_logger
from mq_django.errors import (
    ConfigurationError,
    ConnectionLost,
    ConnectionRejected,
    NotPermitted,
    QueueClosed,
    StoreError,
    UnknownGroup,
)
from mq_django.inbox.entries import missing_tables
from mq_django.inbox.once import databases_of, unknown_database
from mq_django.stores import open_store
from mq_django.stores.partition_transport import check_reply, record_command
from mq_django.stores.topic_stats import group_names
from mq_django.transport.capabilities import examine
from mq_django.transport.cluster_transport import AnySession
from mq_django.transport.connections import get_client, get_clients, open_session, open_transports
from mq_django.transport.sessions import Session, fan_out

logger = get_logger(__name__)

#: Seconds between two attempts to reach Redis.
RETRY_AFTER = 1.0
#: Seconds for which `--drain` tries to reach Redis at its start. Somebody waits for it to end.
PATIENCE = 10.0


def succeeds_in_child(check: Callable[[], None]) -> bool:
    """Return whether a function has passed in a fork of this process. It is not called where a fork is not safe."""
    if other_threads():
        return False
    connections.close_all()  # the child would use the same
    flush()
    child = os.fork()
    if not child:
        with suppress(BaseException):
            check()
            flush()
            os._exit(0)
        os._exit(1)
    # As long as the checks take, as in this process. The parent process may have set SIGCHLD to be ignored.
    with suppress(ChildProcessError):
        return os.waitpid(child, 0)[1] == 0
    return False


def await_server(queues: Sequence[QueueConfig], signals: SignalPipe, *, patience: float = math.inf) -> bool:
    """Wait until a Redis server of these queues can be reached; return False when asked to stop.

    Args:
        patience: the longest time to wait, in seconds.

    Raises:
        ConnectionLost: no server could be reached in this time.
        ConnectionRejected: a server does not accept the CONNECTION settings, so waiting does not help.
    """
    ends, unreachable = time.monotonic() + patience, set[str]()
    connections = list(dict.fromkeys(config.connection for config in queues))
    while True:
        errors = {connection: _try(connection) for connection in connections}
        for connection, error in errors.items():
            if error is not None and connection not in unreachable:
                logger.error("%s. Still trying.", str(error).rstrip("."))
                unreachable.add(connection)
        reached = {connection for connection, error in errors.items() if error is None}
        if reached:
            if reached & unreachable:
                logger.info("Redis can be reached now.")
            return True
        if time.monotonic() > ends:
            raise next(error for error in errors.values() if error is not None)
        if not STOPS.isdisjoint(signals.wait(RETRY_AFTER)):
            return False


def _try(connection: str) -> ConnectionLost | None:
    """Return the error if a server cannot be reached; of a cluster, if none of its masters can."""
    lost: ConnectionLost | None = None
    try:
        clients = get_clients("chores", connection)
    except ConnectionLost as error:
        return error
    for client in clients:
        session = Session(client)
        try:
            session.pipeline([("PING",)])
        except ConnectionLost as error:
            lost = error
            continue
        session.release()
        return None
    return lost


def require_groups(names: Sequence[str]) -> None:
    """Check that groups of topics, named `topic:group`, exist: another program creates a group that it handles.

    Any name can be that of a group, so a typo would otherwise create one.

    Raises:
        UnknownGroup: a group does not exist.
        StoreError: a topic cannot be read.
    """
    for name in names:
        topic, _, group = name.partition(GROUP_SEPARATOR)
        config = get_config().topic(topic)
        session = open_session("chores", config.connection)
        (known,) = group_names([config], [session])
        session.release()
        if isinstance(known, StoreError):
            raise known
        if group not in known:
            raise UnknownGroup(
                f"Topic {topic!r} has no group {group!r}: no subscriber has it, and no other program has created it"
            )


def with_known_partitions(queues: Sequence[QueueConfig], *, all_of_them: bool = False) -> list[QueueConfig]:
    """Return the queues that have as many partitions in Redis as in the settings, or that cannot be read.

    The consumers of another one would look for messages where they are not, so it is logged as an error.

    Args:
        queues: queues, and partitions.
        all_of_them: raise the error of the first one with another number.

    Raises:
        QueueClosed: none is left.
    """
    names = dict.fromkeys(config.public_name for config in queues if config.store != "rsmq")
    wholes = [get_config().queue(name) for name in names]
    transports, refused = open_transports("chores", [whole.connection for whole in wholes]), dict[str, QueueClosed]()
    for whole, (reply,) in zip(wholes, fan_out(transports, [[record_command(whole)] for whole in wholes]), strict=True):
        try:
            if not isinstance(reply, Exception):
                check_reply(whole, reply)
        except QueueClosed as error:
            refused[whole.name] = error
    left = [config for config in queues if config.public_name not in refused]
    if refused and (all_of_them or not left):
        raise next(iter(refused.values()))
    for refusal in refused.values():
        logger.error("%s. It is not handled until the next start", refusal)
    return left


def check_inbox(queues: Sequence[QueueConfig]) -> None:
    """Check that the databases of handlers with `@exactly_once` have the tables. One that cannot be read is left out.

    Raises:
        ConfigurationError: a database is not in the settings, or has no such table.
    """
    for using in sorted({using for config in queues for using in databases_of(config.name)}):
        if unknown := unknown_database(using):
            raise ConfigurationError(unknown)
        try:
            missing = missing_tables(using)
        except DatabaseError as error:
            logger.warning("Database %s could not be examined: %s", using, error)
            continue
        finally:
            connections[using].close()
        if missing:
            raise ConfigurationError(missing[0])


def examine_servers(queues: Sequence[QueueConfig]) -> None:
    """Log the risks of the configuration of each Redis server, and refuse one that would certainly lose messages.

    Raises:
        ConfigurationError: messages would be lost, or the server lacks a needed command.
        ConnectionRejected: the server does not accept the CONNECTION settings.
        NotPermitted: the Redis user has no permission for any of the queues on a server.
    """
    logged: set[str] = set()
    for share in by_server(queues).values():
        _examine(share, logged)


def _examine(queues: ServerQueues, logged: set[str]) -> None:
    """Examine a server. A problem of several servers is logged once: the nodes of a cluster have the same settings."""
    connection = connection_of(queues)
    try:
        findings = examine(get_client("chores", connection, key=next(iter(queues.values())).keys.wake))
    except ConnectionRejected:
        raise
    except StoreError as error:
        logger.warning("Redis could not be examined: %s", error)
        findings = []
    for message in dict.fromkeys(finding.message for finding in findings):
        if message not in logged:
            logger.warning("%s", message)
        logged.add(message)
    if fatal := [finding.message for finding in findings if finding.fatal]:
        raise ConfigurationError(" ".join(fatal))
    session = open_session("chores", connection)
    failures = [refusal for config in queues.values() if (refusal := _refusal(config, session)) is not None]
    session.release()
    if failures and len(failures) == len(queues):
        raise failures[0]
    for refusal in failures:
        logger.error("%s", refusal)


def _refusal(config: QueueConfig, session: AnySession) -> NotPermitted | None:
    """Return the error if the Redis user lacks a permission in a queue. The services handle all other errors."""
    try:
        open_store(config, session).promote(limit=1)
    except NotPermitted as error:
        return NotPermitted(f"Queue {config.name}: {error}")
    except StoreError:
        pass
    return None
