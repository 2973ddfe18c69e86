"""Publish the rows of outboxes, as a service of a supervisor and of `manage.py mq outbox --relay`."""

import time
from collections.abc import Callable, Mapping, Sequence

from django.db import DatabaseError, connections

from mq_django.conf import Config, DeliveryOptions, TopicConfig, get_config
from mq_django.consumers.service import FIRST_BACKOFF, MAX_BACKOFF, SERVER_ERRORS, Service, assign, server_of
from mq_django.consumers.supervisor.services import Listener
from mq_django.core.keys import outbox_channel
from mq_django.core.logs import get_logger
from mq_django.core.publication import Publication
from mq_django.errors import QueueFull, StoreError
from mq_django.outbox.insertion import outbox_aliases
from mq_django.outbox.relay import DatabaseRelay
from mq_django.producers.queues import Queue
from mq_django.producers.sinks import announce, publication_sent
from mq_django.producers.topics import Topic
from mq_django.signals import message_published
from mq_django.transport.connections import address_of, open_session

logger = get_logger(__name__)

#: Seconds between two looks at a database without a notification: if a queue or topic has OUTBOX, or another process
#: has an open claim; and otherwise.
POLL, RARE_POLL = 1.0, 30.0
#: Seconds until a queue that is full is tried again.
FULL = 0.2
#: Seconds between two looks for databases with an outbox: if there is one, or the option OUTBOX; and otherwise.
SEARCH_FOR_DATABASES, RARE_SEARCH = 60.0, 600.0
#: Seconds for which a database connection is used if CONN_MAX_AGE says nothing, or 0.
CONNECTION_AGE = 60.0


class OutboxService(Service):
    """Publishes the rows for the queues and topics of one server, from all databases.

    Args:
        destinations: the queues and topics, by name.
    """

    name = "outbox"

    def __init__(self, destinations: Mapping[str, DeliveryOptions]) -> None:
        super().__init__()
        self._destinations = destinations
        #: Whether a queue or topic has OUTBOX. Without it, `publish(outbox=True)` may still write rows.
        self._is_configured = any(each.outbox for each in destinations.values())
        self._poll = POLL if self._is_configured else RARE_POLL
        #: Is started when a database with an outbox is found; None: it is a service of its own.
        self.listener: Listener | None = None
        self._relays: dict[str, DatabaseRelay] = {}
        self._next_search = 0.0
        #: Server or destination that has failed -> when it is tried again on the monotonic clock, and after how long.
        self._failed: dict[str, tuple[float, float]] = {}
        #: Alias -> when its connection was first used.
        self._connected: dict[str, float] = {}

    def run_once(self) -> float:
        """Publish at most one claim for each destination, and return the seconds until the next round."""
        self._find_databases()
        results = [self._relay(relay) for relay in self._relays.values()]
        self._end_old_connections()
        if any(results):
            return 0.0
        if any(relay.is_waiting for relay in self._relays.values()):
            return FULL
        return POLL if any(relay.is_watching for relay in self._relays.values()) else self._poll

    def progress(self) -> Mapping[str, object]:
        """See Service.progress(). How long a database lets it wait is a setting of the project, and is no failure."""
        found = super().progress()
        return {name: None if value is None else time.monotonic() for name, value in found.items()}

    def stop(self) -> None:
        """End the loops."""
        super().stop()
        if self.listener is not None:
            self.listener.stop()

    def join(self, timeout: float) -> bool:
        """Wait for the loops to end."""
        has_ended = super().join(timeout)
        return (self.listener is None or self.listener.join(timeout)) and has_ended

    def close(self) -> None:
        """Close the connections of this thread."""
        for alias in self._relays:
            connections[alias].close()

    def _log_failure(self, what: str, error: BaseException) -> None:
        """See Service._log_failure(). `what` says from where or to where messages are not published."""
        if not self._may_log(what, error):
            return
        if isinstance(error, StoreError | QueueFull):
            logger.warning("Messages of the outbox cannot be published %s, and wait: %s", what, error)
        else:
            logger.error("Messages of the outbox could not be published %s, and wait", what, exc_info=error)

    def _find_databases(self) -> None:
        if time.monotonic() < self._next_search:
            return
        for alias in outbox_aliases(is_used=self._is_configured):
            if alias not in self._relays:
                self._relays[alias] = DatabaseRelay(alias, self._destinations, announce_published)
        is_often = self._is_configured or self._relays
        self._next_search = time.monotonic() + (SEARCH_FOR_DATABASES if is_often else RARE_SEARCH)
        if self._relays and self.listener is not None and self._thread is not None:
            self.listener.start()

    def _relay(self, relay: DatabaseRelay) -> bool:
        """Do one round for a database, and return whether there may be more to do at once."""
        alias, is_busy = relay.tables.alias, False
        self._connected.setdefault(alias, time.monotonic())
        try:
            for destination, step in relay.steps():
                self.progressed = time.monotonic()
                is_busy = self._do(alias, destination, step) or is_busy
                if self.stopping:
                    return False
        except DatabaseError as error:
            self._log_failure(f"from database {alias}", error)
            connections[alias].close_if_unusable_or_obsolete()
            return False
        return is_busy

    def _do(self, alias: str, destination: DeliveryOptions, step: Callable[[], bool]) -> bool:
        """Do one step, unless its server or its destination has just failed. An error affects no other destination."""
        server = server_of(destination.connection, destination.keys.outbox) or "Redis"
        if any(time.monotonic() < self._failed.get(name, (0.0, 0.0))[0] for name in (server, destination.name)):
            return False
        try:
            result = step()
        except SERVER_ERRORS as error:
            self._back_off_from(server)
            # Not the name of the server, which may be a URL with a password.
            self._log_failure(f"to Redis at {address_of(destination.connection)}", error)
            return False
        except BaseException as error:  # noqa: BLE001 - as in Service.each()
            self._back_off_from(destination.name)
            self._log_failure(f"to {destination.name}", error)
            if isinstance(error, DatabaseError):
                connections[alias].close_if_unusable_or_obsolete()
            return False
        self._failed.pop(server, None)
        self._failed.pop(destination.name, None)
        return result

    def _back_off_from(self, name: str) -> None:
        _, last = self._failed.get(name, (0.0, 0.0))
        pause = min(MAX_BACKOFF, last * 2 or FIRST_BACKOFF)
        self._failed[name] = (time.monotonic() + pause, pause)

    def _end_old_connections(self) -> None:
        """Close connections after CONN_MAX_AGE, but not each round if that is 0; each round if rounds are rare."""
        now = time.monotonic()
        for alias, since in list(self._connected.items()):
            age = connections[alias].settings_dict["CONN_MAX_AGE"]
            if self._poll == RARE_POLL or (age is not None and now - since > (age or CONNECTION_AGE)):
                connections[alias].close()
                del self._connected[alias]


def outbox_services() -> list[Service]:
    """Return the services that publish the rows of outboxes, for each server one, with what wakes it.

    If no queue or topic has OUTBOX, nothing is subscribed before a database with an outbox is found.
    """
    servers: dict[str, dict[str, DeliveryOptions]] = {}
    for each in destinations_of(get_config()):
        servers.setdefault(each.connection, {})[each.name] = each
    found = list[Service]()
    for connection, share in servers.items():
        services = _services_of(connection, share)
        assign(services, share.values(), servers=len(servers))
        found += services
    return found


def destinations_of(config: Config) -> list[DeliveryOptions]:
    """Return the queues and topics that may have rows."""
    found: Sequence[DeliveryOptions] = [*config.queues.values(), *config.topics.values()]
    return [each for each in found if each.why_unsupported("outbox") is None]


def announce_published(destination: DeliveryOptions, publication: Publication, message_id: str) -> None:
    """Send the signals of a message that the relay has published."""
    if message_published.receivers or publication_sent.receivers:
        announce(Topic if isinstance(destination, TopicConfig) else Queue, publication, message_id)


def _services_of(connection: str, share: Mapping[str, DeliveryOptions]) -> list[Service]:
    service = OutboxService(share)
    channels = {outbox_channel(each.namespace): 0 for each in share.values()}
    listener = Listener(open_session("chores", connection), channels, lambda _number, _text: service.wake())
    listener.name = "outbox listener"
    if any(each.outbox for each in share.values()):
        return [service, listener]
    service.listener = listener
    return [service]
