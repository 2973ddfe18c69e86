"""Send the heartbeats of this supervisor, and detect supervisors that are dead."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from mq_django.conf import get_config
from mq_django.consumers.processes import has_ended, here
from mq_django.consumers.service import Answer, ServerQueues, Service, held_for, interval, open_session_to
from mq_django.core.logs import get_logger
from mq_django.errors import StoreError
from mq_django.stores import open_members
from mq_django.stores.members import HOUSEKEEPING, Membership
from mq_django.transport.scripts import Command

logger = get_logger(__name__)

#: A consumer that no supervisor announces is taken for dead after this many visibility timeouts.
UNKNOWN_PATIENCE = 5
#: The field in which a supervisor announces its visibility timeout, and the highest value that others accept.
VISIBILITY = "visibility_ms"
MAX_VISIBILITY_MS = 24 * 3600 * 1000
#: The field in which it announces digests of the options of the queue, for `manage.py mq doctor`.
OPTIONS = "options"
#: The field in which it announces that the queue has ORDERED: see `lua/lines_begin.lua`.
ORDERED = "ordered"


class Silence:
    """Measures how long each sign of life has not changed, on this process's monotonic clock.

    The clocks of other machines and of Redis may step, so no timestamps are compared. Time in which this process could
    not observe does not count: while Redis did not answer, or while the process was stopped.
    """

    def __init__(self, limit: float, max_gap: float) -> None:
        self._limit = limit
        #: At most this many seconds between two observations count.
        self._max_gap = max_gap
        #: Name -> its sign, the seconds since that changed, and the limit in seconds.
        self._last: dict[str, tuple[object, float, float]] = {}
        self._observed: float | None = None

    def forget(self) -> None:
        """Start all measurements again, because Redis could not be reached."""
        self._last.clear()

    def observe(
        self, signs: Mapping[str, object], now: float, *, blind: float = 0.0, limits: Mapping[str, float] | None = None
    ) -> list[str]:
        """Return the names that have been silent for too long.

        `blind` are the seconds since the last call in which nothing could be observed. `limits` are the limits in
        seconds of names that have their own.
        """
        gap = 0.0 if self._observed is None else now - self._observed
        watched = max(0.0, min(gap - blind, self._max_gap))
        self._observed = now
        known, self._last = self._last, {}
        for name, sign in signs.items():
            last, silent, _ = known.get(name, (None, 0.0, 0.0))
            limit = (limits or {}).get(name, self._limit)
            self._last[name] = (sign, silent + watched if name in known and last == sign else 0.0, limit)
        return [name for name, (_, silent, limit) in self._last.items() if silent >= limit]

    def next_decision(self) -> float:
        """Return the seconds until the next name reaches its limit, if it stays silent."""
        left = (limit - silent for _, silent, limit in self._last.values())
        return min((seconds for seconds in left if seconds > 0), default=self._limit)


class Announcement(NamedTuple):
    """The supervisor and the consumers that a heartbeat announces."""

    supervisor: str
    description: Mapping[str, Any]
    consumers: Mapping[str, Mapping[str, Any]]
    #: Consumer -> its running messages and its counts, one value per queue. For the admin.
    activity: Mapping[str, Sequence[Mapping[str, Any]]] = {}

    def of_queue(self, number: int) -> Mapping[str, Mapping[str, Any]]:
        """Return the descriptions of the consumers in one queue."""
        return {
            name: {**announced, **self.activity[name][number]} if name in self.activity else announced
            for name, announced in self.consumers.items()
        }


class HeartbeatCallbacks(NamedTuple):
    """The callbacks from the heartbeat's thread to its supervisor. Queues are given by number."""

    announce: Callable[[], Announcement]
    #: (queue, announcement, until, since): no supervisor takes the announced consumers for dead until then, and they
    #: hold what they have read since.
    held: Callable[[int, Announcement, float, float], None]
    #: (announcement): another supervisor took this one for dead.
    evicted: Callable[[Announcement], None]
    #: (queue, supervisor, membership): that supervisor is dead.
    dead: Callable[[int, str, Membership], None]
    #: (queue, consumer, has_ended): no supervisor announces this consumer, which may hold messages. `has_ended`: it is
    #: one of this supervisor, and its own messages are settled.
    unknown: Callable[[int, str, bool], None]
    #: (consumer or supervisor -> "quiet" or "stop"): requests of operators, with each heartbeat.
    asked: Callable[[Mapping[str, str]], None]
    #: (queue, names): the names that consumers announce to handle; see Membership.announced_names().
    names: Callable[[int, Collection[str]], None]
    #: (queue, counts): see Membership.requests.
    requests: Callable[[int, str], None]
    #: (queue, membership): all members.
    members: Callable[[int, Membership], None]


class Heartbeat(Service):
    """Sends a heartbeat to every queue, removes ended consumers, and reports dead supervisors."""

    name = "heartbeat"

    def __init__(self, queues: ServerQueues, callbacks: HeartbeatCallbacks) -> None:
        super().__init__()
        self._session = open_session_to(queues)
        self._queues = queues
        self._members = {number: open_members(config, self._session) for number, config in queues.items()}
        self._callbacks = callbacks
        self._options = {number: get_config().digests_of(config) for number, config in queues.items()}
        self._timeouts = {number: config.visibility_timeout.total_seconds() for number, config in queues.items()}
        #: Seconds between two heartbeats.
        self.interval = min(interval(timeout) for timeout in self._timeouts.values())
        #: When the server has last answered a heartbeat, on the monotonic clock; None before the first answer.
        self.answered: float | None = None
        max_gap = self.interval * 1.5
        timeouts = self._timeouts.items()
        self._silences = {number: Silence(timeout, max_gap) for number, timeout in timeouts}
        self._unknown = {number: Silence(timeout * UNKNOWN_PATIENCE, max_gap) for number, timeout in timeouts}
        #: The generation of each queue, and the name under which this supervisor is registered in it.
        self._known = dict.fromkeys(queues, ("", ""))
        self._departed: dict[int, set[str]] = {number: set() for number in queues}
        #: The most consumers of a queue: a heartbeat takes Redis the longer, the more there are.
        self._most = 1

    def depart(self, number: int, consumer: str) -> None:
        """Remove a consumer from a queue: it has ended and holds nothing there."""
        # Removed by the heartbeat's own thread: a heartbeat under way would register the consumer again.
        self._departed[number].add(consumer)

    def leave(self, supervisor: str) -> None:
        """Unregister the supervisor and its consumers. Call it when the loop has ended."""
        try:
            self.each(
                self._members,
                lambda number: self._members[number].leave(self._departed[number], supervisor=supervisor),
                called=self._name,
            )
        except StoreError as error:
            logger.warning("Supervisor %s remains registered until its heartbeat expires: %s", supervisor, error)

    def run_once(self) -> float:
        """Send one heartbeat to every queue."""
        began = time.monotonic()
        announcement = self._callbacks.announce()
        # Together they take Redis some 2 ms.
        most, self._most = max(1, 300 // (2 + self._most)), 1
        self.each_together(
            self._queues,
            lambda number: self._beat(number, announcement),
            lambda number, answer: self._beaten(number, announcement, answer),
            transport=self._session,
            called=self._name,
            most=most,
        )
        self.each(self._queues, self._remove_ended, called=self._name)
        decision = min(silence.next_decision() for silence in self._silences.values())
        return max(0.02, min(self.interval - (time.monotonic() - began), decision))

    def _name(self, number: int) -> str:
        return self._queues[number].name

    def recover(self, error: Exception) -> None:
        """Start all measurements again: no supervisor could send heartbeats while Redis could not be reached."""
        for silence in (*self._silences.values(), *self._unknown.values()):
            silence.forget()

    def _consumes(self, number: int) -> bool:
        return not self._queues[number].external

    def _beat(self, number: int, announcement: Announcement) -> Command:
        generation, known_as = self._known[number]
        return self._members[number].beat_command(
            announcement.supervisor,
            {
                **announcement.description,
                VISIBILITY: round(self._timeouts[number] * 1000),
                OPTIONS: self._options[number],
                HOUSEKEEPING: True,
                **({ORDERED: True} if self._queues[number].ordered else {}),
            },
            announcement.of_queue(number) if self._consumes(number) else {},
            generation="" if known_as != announcement.supervisor else generation,
        )

    def _beaten(self, number: int, announcement: Announcement, answer: Answer) -> None:
        generation, consumes = self._known[number][0], self._consumes(number)
        membership = self._members[number].read_beat(answer.reply, announcement.consumers if consumes else ())
        self.answered = now = answer.ended
        if membership is None:
            logger.error("Supervisor %s was taken for dead; it replaces its consumers", announcement.supervisor)
            self._callbacks.evicted(announcement)
            return
        if consumes:
            until = answer.began + held_for(self._timeouts[number])
            self._callbacks.held(number, announcement, until, self._members[number].held_since)
        if generation and membership.generation != generation:
            logger.error(
                "data_loss_suspected: queue %s was emptied, or its Redis lost data",
                self._queues[number].name,
            )
        self._known[number] = (membership.generation, announcement.supervisor)
        self._most = max(self._most, len(membership.consumers))
        self._callbacks.names(number, membership.announced_names())
        self._callbacks.requests(number, membership.requests)
        self._callbacks.members(number, membership)
        self._pass_on(announcement, membership.asks)
        self._report_silent(number, announcement.supervisor, membership, now, blind=now - answer.began)

    def _pass_on(self, announcement: Announcement, asks: Mapping[str, str]) -> None:
        ours = {announcement.supervisor, *announcement.consumers}
        if found := {name: request for name, request in asks.items() if name in ours}:
            self._callbacks.asked(found)

    def _report_silent(self, number: int, supervisor: str, membership: Membership, now: float, *, blind: float) -> None:
        signs = membership.heartbeat_counts()
        signs.pop(supervisor, None)
        limits = {name: limit for name, announced in membership.supervisors.items() if (limit := _own_limit(announced))}
        silent = self._silences[number].observe(signs, now, blind=blind, limits=limits)
        for name in {*silent, *(name for name in signs if _is_gone(membership, name))}:
            self._callbacks.dead(number, name, membership)
        for name in self._unknown[number].observe(membership.unknown, now, blind=blind):
            self._callbacks.unknown(number, name, False)

    def _remove_ended(self, number: int) -> None:
        if ended := list(self._departed[number]):
            holding = self._members[number].leave(ended)
            self._departed[number].difference_update(ended)
            for name in holding:
                self._callbacks.unknown(number, name, True)


def _own_limit(announced: Mapping[str, Any]) -> float | None:
    """Return after how many seconds of silence a supervisor is dead by the timeout that it announces, or None.

    Its timeout may differ from ours during a rolling deploy. It sends heartbeats and stops by its own.
    """
    ms = announced.get(VISIBILITY)
    return ms / 1000 if isinstance(ms, int) and 0 < ms <= MAX_VISIBILITY_MS else None


def _is_gone(membership: Membership, supervisor: str) -> bool:
    """Return whether a supervisor of this machine has ended with all its consumers."""
    machine, announced = here(), membership.supervisors.get(supervisor, {})
    if machine is None or (announced.get("boot"), announced.get("pids")) != machine:
        return False
    return not any(
        _runs(process)
        for process in (announced, *(membership.consumers[name] for name in membership.consumers_of(supervisor)))
    )


def _runs(announced: Mapping[str, Any]) -> bool:
    pid, moment = announced.get("pid"), announced.get("started")
    # Without these fields only the heartbeat decides.
    return not isinstance(pid, int) or pid < 1 or not moment or not has_ended(pid, moment)
