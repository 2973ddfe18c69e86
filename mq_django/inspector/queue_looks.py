"""What people look at: counts, and pages of messages. Nothing here changes anything."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from mq_django.conf import QueueConfig, TopicConfig
from mq_django.core.keys import UNIQUE_PREFIX, GroupKeys, QueueKeys, RsmqKeys
from mq_django.core.numbers import score_ms
from mq_django.core.wire import entry_ms
from mq_django.errors import StoreError
from mq_django.stores.counters import TOOK, WAITED, WHAT, counter_fields, minute_fields, there
from mq_django.stores.members import Membership, read_membership
from mq_django.stores.topic_stats import TopicStats, topic_stats
from mq_django.transport import scripts
from mq_django.transport.failures import readable
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Wire, reply_or_raise

#: Messages of a log that a page counts where Redis cannot tell how many a group has not read.
MAX_COUNTED = 10_000

#: Bytes of a body that a page of messages still carries.
MAX_LISTED = 32 * 1024


#: What `waiting_find` calls the rooms; one of those that wait behind others is ready, and not here.
ROOMS: dict[int, Literal["delayed", "unhandled", "parked"]] = {1: "delayed", 2: "unhandled", 4: "parked"}
RANKED = 3


class Look(NamedTuple):
    """What one look at a queue sees."""

    #: By the server's clock.
    now_ms: int
    ready: int
    pending: int
    delayed: int
    unhandled: int
    dead: int
    #: When the oldest ready message became so; None when none is ready.
    oldest_ms: int | None
    #: When the first delayed message is due; None when none is delayed.
    next_due_ms: int | None
    paused: bool
    membership: Membership
    #: Fields of the counters of this hour and of the one before.
    this_hour: Mapping[bytes, bytes]
    last_hour: Mapping[bytes, bytes]
    #: The hour of `this_hour`, since 1970.
    hour: int
    parked: int = 0


class Waiter(NamedTuple):
    """A message in the waiting room."""

    member: bytes
    #: Of a delayed message, when it is due in ms since 1970.
    score: float
    #: Its length, when it is too long for a page; None when there is none.
    body: bytes | int | None
    #: What became of its attempts, where that does not stand in the body.
    history: str = ""
    #: What finds it and says nothing: its id, or its place in line; empty when only a unique key finds it.
    handle: bytes = b""


class FoundWaiter(NamedTuple):
    """A message in the waiting room, and where it waits."""

    room: Literal["delayed", "unhandled", "parked"]
    waiter: Waiter


class WaitingPage(NamedTuple):
    """A page of messages that wait."""

    now_ms: int
    total: int
    waiters: Sequence[Waiter]


def look(configs: Sequence[QueueConfig], wire: Wire, *, minutes: int) -> list[Look | StoreError]:
    """Look at queues, with what was counted in all in the last minutes.

    One round trip and one command a queue; what cannot be read is an error in its place.
    """
    now = int(time.time()) // 60
    replies = wire.trip([_look_command(config.keys, now, minutes) for config in configs])
    looks = [_look(reply, now, minutes) for reply in replies]
    return _with_logs(looks, configs, wire)


def look_closely(config: QueueConfig, wire: Wire, *, longest: int) -> Look | StoreError:
    """Look at one queue, with what was counted in this hour and the one before.

    Also by name, while these are at most `longest`.
    """
    now = int(time.time()) // 60
    keys, hour = config.keys, now // 60
    (reply,) = wire.trip([_look_command(keys, now, 0)])
    (found,) = _with_logs([_look(reply, now, 0)], [config], wire)
    if isinstance(found, StoreError):
        return found
    this_hour, last_hour = counted([keys.minutes(hour), keys.minutes(hour - 1)], wire, slots=60, longest=longest)
    return found._replace(this_hour=this_hour, last_hour=last_hour)


def _with_logs(
    looks: Sequence[Look | StoreError], configs: Sequence[QueueConfig], wire: Wire
) -> list[Look | StoreError]:
    """Add what groups of topics have not read yet, and what they have pending in the log."""
    topics = list({config.keys.topic: 0 for config in configs if isinstance(config.keys, GroupKeys)})
    surveys = dict(zip(topics, topic_stats(topics, wire, at_most=MAX_COUNTED), strict=True))
    return [
        _with_log(look, config.keys.group, surveys[config.keys.topic])
        if isinstance(config.keys, GroupKeys) and not isinstance(look, StoreError)
        else look
        for look, config in zip(looks, configs, strict=True)
    ]


def _with_log(look: Look, group: str, found: TopicStats | StoreError) -> Look | StoreError:
    if isinstance(found, StoreError):
        return found
    for place, *_ in found.groups:
        if place.name == group:
            oldest = look.now_ms - place.lag_ms if place.lag else None
            return look._replace(
                ready=look.ready + place.lag,
                pending=look.pending + place.pending,
                oldest_ms=min((ms for ms in (oldest, look.oldest_ms) if ms is not None), default=None),
            )
    return look


def _look_command(keys: QueueKeys, now: int, minutes: int) -> Command:
    hour = now // 60
    this_hour, last_hour = minute_fields(now, minutes)
    counted = [keys.consumers, keys.minutes(hour), keys.minutes(hour - 1)]
    if isinstance(keys, RsmqKeys):
        key_names = [keys.zset, keys.hash, keys.owners, keys.unhandled, keys.dead, keys.control]
        return scripts.command("rsmq_look", keys=[*key_names, *counted], args=[len(this_hour), *this_hour, *last_hour])
    key_names = [keys.ready, keys.urgent, keys.priority, keys.due, keys.unhandled, keys.dead, keys.control]
    return scripts.command(
        "pages_look",
        keys=[*key_names, *counted, keys.parked],
        args=[keys.group, len(this_hour), *this_hour, *last_hour],
    )


@readable
def _look(reply: Any, now: int, minutes: int) -> Look:
    found = reply_or_raise(reply)
    now_ms, deliverable, pending, delayed, unhandled, parked, dead, oldest, next_due, state, membership, *counted = (
        found
    )
    this_hour, last_hour = (
        there(fields, values) for fields, values in zip(minute_fields(now, minutes), counted, strict=True)
    )
    return Look(
        now_ms=now_ms,
        # A server of 6.2 may count as pending what was deleted.
        ready=max(0, deliverable - pending),
        pending=pending,
        delayed=delayed,
        unhandled=unhandled,
        parked=parked,
        dead=dead,
        oldest_ms=entry_ms(oldest) if oldest else None,
        next_due_ms=score_ms(next_due),
        paused=state == b"PAUSED",
        membership=read_membership(_pairs(membership)),
        this_hour=this_hour,
        last_hour=last_hour,
        hour=now // 60,
    )


def _pairs(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def hours_of(
    days: Sequence[int], configs: Sequence[QueueConfig | TopicConfig], wire: Wire
) -> list[Mapping[bytes, bytes]]:
    """Return what was counted in all in the hours of some days since 1970, for each queue and day."""
    fields = counter_fields(range(24))
    commands: list[Command] = [("HMGET", config.keys.hours(day), *fields) for config in configs for day in days]
    return [there(fields, reply_or_raise(reply)) for reply in wire.trip(commands)]


def counted(keys: Sequence[str], wire: Wire, *, slots: int, longest: int) -> list[Mapping[bytes, bytes]]:
    """Return what some hashes counted in all, and by name, too, while they have at most `longest` fields."""
    (length,) = wire.trip([scripts.command("counters_count", keys=keys, args=[])])
    if reply_or_raise(length) <= longest:
        return [_pairs(reply_or_raise(reply)) for reply in wire.trip([("HGETALL", key) for key in keys])]
    fields = counter_fields(range(slots), (*WHAT, *TOOK, *WAITED))
    replies = wire.trip([("HMGET", key, *fields) for key in keys])
    return [there(fields, reply_or_raise(reply)) for reply in replies]


class Pages:
    """Pages of the messages of one queue."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._queue = config.name
        self._keys = config.keys
        self._wire = wire

    def delayed(self, *, start: int, limit: int, max_bytes: int = MAX_LISTED) -> WaitingPage:
        """Return delayed messages by rank: those due first come first."""
        if isinstance(self._keys, RsmqKeys):
            key_names = [self._keys.zset, self._keys.hash, self._keys.owners, self._keys.unhandled]
            return self._page(scripts.command("rsmq_delayed", keys=key_names, args=[start, limit, max_bytes]))
        return self._waiting(self._keys.due, start, limit, max_bytes)

    def visible(self, *, start: int, limit: int, max_bytes: int = MAX_LISTED) -> WaitingPage:
        """Return by rank what an RSMQ queue has, in the order in which it can be seen."""
        return self._waiting(self._keys.due, start, limit, max_bytes)

    def unhandled(self, *, start: int, limit: int, max_bytes: int = MAX_LISTED) -> WaitingPage:
        """Return unhandled messages by rank: those of one name lie together."""
        return self._waiting(self._keys.unhandled, start, limit, max_bytes)

    def parked(self, *, start: int, limit: int, max_bytes: int = MAX_LISTED) -> WaitingPage:
        """Return parked messages by rank: those of one key stand together, in line."""
        return self._waiting(self._keys.parked, start, limit, max_bytes)

    def ranked(self, *, start: int, limit: int, max_bytes: int = MAX_LISTED) -> WaitingPage:
        """Return by rank the ready messages with a priority that do not stand in a stream."""
        return self._waiting(self._keys.priority, start, limit, max_bytes)

    def ranked_one(self, member: bytes) -> Waiter | None:
        """Return a ready message with a priority by its id, or None."""
        keys = self._keys
        replies = self._wire.trip([("ZSCORE", keys.priority, member), ("HGET", keys.waiting, member)])
        score, body = (reply_or_raise(reply) for reply in replies)
        return None if score is None else Waiter(member, float(score), body)

    def _waiting(self, key: str, start: int, limit: int, max_bytes: int) -> WaitingPage:
        args = [start, start + limit - 1, max_bytes]
        return self._page(scripts.command("pages_waiting", keys=[key, self._keys.waiting], args=args))

    def _page(self, command: Command) -> WaitingPage:
        now_ms, total, *flat = reply_or_raise(self._wire.trip([command])[0])
        waiters = [
            Waiter(member, float(score), None if body == -1 else body)
            for member, score, body in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        ]
        return WaitingPage(now_ms, total, self._identified(waiters))

    def _identified(self, waiters: Sequence[Waiter]) -> list[Waiter]:
        """Return messages with what finds them again and says nothing: their ids, also those of unique keys."""
        is_rsmq = isinstance(self._keys, RsmqKeys)
        unique = [] if is_rsmq else [w.member for w in waiters if w.member.startswith(UNIQUE_PREFIX.encode())]
        ids = self._indexed(unique)
        back = self._indexed(list(ids.values()))
        # Another message may have the same id, and then it does not find this one.
        known = {member: ids[member] if back.get(ids.get(member, b"")) == member else b"" for member in unique}
        return [waiter._replace(handle=known.get(waiter.member, waiter.member)) for waiter in waiters]

    def _indexed(self, names: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return what the index of unique keys has under some names; a broken one is no reason to show no page."""
        (found,) = self._wire.trip([("HMGET", self._keys.unique, *names)]) if names else ([],)
        pairs = [] if isinstance(found, Exception) else zip(names, found, strict=True)
        return {name: value for name, value in pairs if value is not None}

    def waiter(self, named: bytes) -> FoundWaiter | None:
        """Return the message that waits, by its id, by `u:` and its unique key, or by its member; or None."""
        keys = self._keys
        if isinstance(keys, RsmqKeys):
            return self._rsmq_waiter(keys, named)
        key_names = [keys.due, keys.unhandled, keys.priority, keys.parked]
        index = [keys.waiting, keys.unique, keys.claims, keys.replaced]
        (reply,) = self._wire.trip([scripts.command("waiting_find", keys=[*key_names, *index], args=[named])])
        if isinstance(reply_or_raise(reply), bytes):
            return None
        place, score, body, member = reply
        if place == RANKED:
            return None
        room = ROOMS[place]
        return FoundWaiter(room, self._identified([Waiter(member, float(score), body or None)])[0])

    def _rsmq_waiter(self, keys: RsmqKeys, named: bytes) -> FoundWaiter | None:
        key_names = [keys.zset, keys.hash, keys.unhandled, keys.retried, keys.notes]
        (reply,) = self._wire.trip([scripts.command("rsmq_find", keys=key_names, args=[named])])
        found = None if reply_or_raise(reply) == b"MISSING" else self.rsmq_one(named)
        return None if found is None else FoundWaiter("delayed" if reply[0] == b"DELAYED" else "unhandled", found)

    def rsmq_one(self, message_id: bytes) -> Waiter | None:
        """Return a message of an RSMQ queue, wherever it is, or None."""
        keys = self._keys
        if not isinstance(keys, RsmqKeys):
            return None
        commands: list[Command] = [
            ("ZSCORE", keys.zset, message_id),
            ("HGET", keys.hash, message_id),
            ("HGET", keys.notes, message_id + b":story"),
        ]
        score, body, history = (reply_or_raise(reply) for reply in self._wire.trip(commands))
        if score is None:
            return None
        told = "" if history is None else history.decode(errors="replace")
        return Waiter(message_id, float(score), body, told, handle=message_id)
