"""Counters per minute and hour, by message name."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mq_django.core import clock
from mq_django.core.jsontext import score_ms, whole
from mq_django.core.keys import HostKeys, QueueKeys, TopicKeys
from mq_django.core.messages import Ack, Bury, Delivery, Expire, Retry, StepEnd
from mq_django.errors import StoreError
from mq_django.stores.base import Settlement
from mq_django.transport import scripts
from mq_django.transport.failures import readable
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport, fan_out, reply_or_raise

#: Histogram buckets. Bucket n has the handling times below 100 * 2**n microseconds, or the latencies (from ready to the
#: handler's start) below 2**n milliseconds. The last one has all longer ones: from 7 minutes, and from 70.
BUCKETS = 24

#: The counted outcomes. A message that is handed back or set aside is settled later, and counted then. One that is
#: cancelled is not counted, and neither is a step that its run has dropped.
ENDS: Mapping[type, str] = {
    Ack: "handled",
    Retry: "retried",
    Bury: "buried",
    Expire: "expired",
    StepEnd: "handled",
}

#: Counted by name, and in a total without a name, which is all that pages with many queues read.
WHAT = ("published", *dict.fromkeys(ENDS.values()))

#: Messages in each state once a minute, and the most of them in an hour. In total only: see `note_depths`.
DEPTH = "depth."

#: Messages of dead consumers that others got. Counted by supervisors, in total only.
RECOVERED = "recovered"

#: The handling time of the deliveries of a host and version, in ms.
SPENT = "spent"

#: Handling times and latencies by bucket; also by name and in total.
TOOK = tuple(f"t{number}" for number in range(BUCKETS))
WAITED = tuple(f"w{number}" for number in range(BUCKETS))

_IN_ALL = frozenset((*WHAT, *TOOK, *WAITED))


class Slot(NamedTuple):
    """The keys and the field of the counters of a minute."""

    #: Key of the minutes, key of the hours.
    keys: tuple[str, str]
    minute: int
    hour: int


def slot(keys: QueueKeys | TopicKeys | HostKeys, now: float | None = None) -> Slot:
    """Return the slot of a time in seconds since 1970, of now by default."""
    minutes = int(clock.now() if now is None else now) // 60
    hours = minutes // 60
    return Slot((keys.minutes(hours), keys.hours(hours // 24)), minutes % 60, hours % 24)


class Slots:
    """The current slot, cached for a minute because every publish needs it."""

    def __init__(self, keys: QueueKeys | TopicKeys | HostKeys) -> None:
        self._keys = keys
        self._latest = (-1, Slot(("", ""), 0, 0))

    def now(self) -> Slot:
        """Return the slot of this minute."""
        now = clock.now()
        minutes = int(now) // 60
        if self._latest[0] != minutes:
            self._latest = (minutes, slot(self._keys, now))
        return self._latest[1]

    def add_total(self, what: str, count: int) -> Command:
        """Return the command that adds to the total of a kind that is not counted by name."""
        where = self.now()
        return scripts.command("counters_add", keys=where.keys, args=[where.minute, where.hour, f"|{what}|", count])

    def add_command(self, tally: Mapping[tuple[str, str], int]) -> Command:
        """Return the command that adds counts by (what, name), and to the totals."""
        where = self.now()
        args: list[Argument] = [where.minute, where.hour]
        totals: Counter[str] = Counter()
        for (what, name), count in tally.items():
            args += (f"|{what}|{name}", count)
            if what in _IN_ALL:
                totals[what] += count
        for what, count in totals.items():
            args += (f"|{what}|", count)
        return scripts.command("counters_add", keys=where.keys, args=args)


def bucket(micros: int) -> int:
    """Return the bucket of a handling time in microseconds."""
    return min(BUCKETS - 1, (micros // 100).bit_length())


def latency_bucket(ms: int) -> int:
    """Return the bucket of a latency in milliseconds."""
    return min(BUCKETS - 1, ms.bit_length())


# Samples: what heartbeats and counts of places say once a minute, for charts. One process of all takes each.

#: The versions that are known.
MAX_VERSIONS = 500
#: Deliveries before a consumer is first seen count if it started at most this long before.
UNKNOWN_MS = 120_000
#: How long counters are kept, in seconds, as in `lua/parts/count.lua`: of minutes and of hours.
TTLS = (93_600, 3_024_000)


def claim_sample(transport: Transport, keys: HostKeys, seconds: float) -> bool:
    """Claim the next sample: return True for one caller within `seconds`."""
    command: Command = ("SET", keys.of("sampled"), "1", "NX", "PX", round(seconds * 1000))
    return transport.ask(command) is not None


def note_depths(
    keys: Sequence[QueueKeys], transports: Sequence[Transport], depths: Sequence[Mapping[str, int]]
) -> list[StoreError | None]:
    """Note how many messages queues have in each state; return an error for each that could not be noted.

    Two round trips per server. The figure of an hour is the highest of its minutes.
    """
    where = [slot(each) for each in keys]
    names = [[f"|{DEPTH}{state}|" for state in depth] for depth in depths]
    asked: list[list[Command]] = [
        [("HMGET", at.keys[1], *(f"{at.hour}{name}" for name in each))] for at, each in zip(where, names, strict=True)
    ]
    pipelines: list[list[Command]] = []
    for at, each, depth, (known,) in zip(where, names, depths, fan_out(transports, asked), strict=True):
        before = known if isinstance(known, list) else [None] * len(each)
        hour: list[Argument] = []
        minute: list[Argument] = []
        for name, count, highest in zip(each, depth.values(), before, strict=True):
            minute += (f"{at.minute}{name}", count)
            hour += (f"{at.hour}{name}", max(count, whole(highest) or 0))
        written: list[Command] = [("HSET", at.keys[0], *minute), ("HSET", at.keys[1], *hour)]
        pipelines.append([*written, *(("EXPIRE", key, ttl) for key, ttl in zip(at.keys, TTLS, strict=True))])
    return [
        noted if isinstance(noted := _noted(replies), StoreError) else None
        for replies in fan_out(transports, pipelines)
    ]


@readable
def _noted(replies: Sequence[Any]) -> None:
    for reply in replies:
        reply_or_raise(reply)


class Worked(NamedTuple):
    """The counts of a consumer since it started."""

    host: str
    version: str
    #: When it started, in ms since 1970, if that is known.
    since_ms: int | None
    handled: int
    failed: int
    #: The handling time of these.
    took_ms: int


def note_work(transport: Transport, keys: HostKeys, consumers: Mapping[str, Worked]) -> None:
    """Add what consumers have done since the last sample to the counters of their hosts and versions.

    Names of these counters are `host|version`. New versions are noted. Deliveries that a consumer handles after its
    last sample are left out.
    """
    flat, now_ms = transport.ask(("HGETALL", keys.of("counted"))), clock.now_ms()
    known = {name.decode(errors="replace"): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
    tally: Counter[tuple[str, str]] = Counter()
    written: list[str] = []
    for name, worked in consumers.items():
        before = [*(whole(count) or 0 for count in known.get(name, b"").split(b" ")), 0, 0][:3]
        # It counts on from the most that was seen: while a queue cannot be read, the sum is smaller.
        written += (name, " ".join(str(max(counts)) for counts in zip(worked[3:], before, strict=False)))
        if name not in known and (worked.since_ms or 0) < now_ms - UNKNOWN_MS:
            # When it handled them is not known.
            continue
        for what, count, last in zip(("handled", "retried", SPENT), worked[3:], before, strict=False):
            if count > last:
                tally[what, f"{worked.host}|{worked.version}"] += count - last
    gone = [name for name in known if name not in consumers]
    commands: list[Command] = [Slots(keys).add_command(tally)] if tally else []
    if consumers:
        commands += [("HSET", keys.of("counted"), *written), ("EXPIRE", keys.of("counted"), TTLS[0])]
        seen = [
            part for version in dict.fromkeys(each.version for each in consumers.values()) for part in (now_ms, version)
        ]
        commands += [
            ("ZADD", keys.of("versions"), "NX", *seen),
            ("ZREMRANGEBYRANK", keys.of("versions"), 0, -MAX_VERSIONS - 1),
        ]
    if gone:
        commands.append(("HDEL", keys.of("counted"), *gone))
    transport.ask_all(commands)


def read_versions(transport: Transport, keys: HostKeys) -> dict[str, int]:
    """Return the latest versions of the project, each with the time since when a consumer has it, the oldest first."""
    flat = transport.ask(("ZRANGE", keys.of("versions"), 0, -1, "WITHSCORES"))
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return {version.decode(errors="replace"): ms for version, at in pairs if (ms := score_ms(at)) is not None}


def counters_of(where: Slot, settlements: Sequence[Settlement]) -> tuple[Sequence[Settlement], list[Argument]]:
    """Return deliveries with one kind of outcome, ordered by name and handling time, and the counters for their script.

    See `lua/settle.lua` for the counters.
    """
    try:
        kinds = [(each.delivery.message.name, (each.micros // 100).bit_length()) for each in settlements]  # type: ignore[union-attr,operator]
    except (AttributeError, TypeError):
        # One was not decoded, or has not run. To check each would slow down all other batches.
        kinds = [_kind(each) for each in settlements]
    counts, ordered = Counter(kinds), settlements
    if len(counts) > 1:
        ranks = {kind: number for number, kind in enumerate(counts)}
        ranked = [ranks[kind] for kind in kinds]
        ordered = [settlements[number] for number in sorted(range(len(ranked)), key=ranked.__getitem__)]
    outcome = type(settlements[0].outcome)
    counters: list[Argument] = [where.minute, where.hour]
    for (name, bits), number in counts.items():
        ends = ENDS[outcome] if bits < 0 else f"{ENDS[outcome]} t{min(bits, BUCKETS - 1)}"
        # An entry that is not a message counts when it is buried. One that was deleted is only acked.
        counters += (number, name or "-", ends if name or outcome is Bury else "")
    return ordered, counters


def _kind(settlement: Settlement) -> tuple[str, int]:
    delivery, micros = settlement.delivery, settlement.micros
    name = delivery.message.name if isinstance(delivery, Delivery) else ""
    return name, -1 if micros is None else bucket(micros)


def minute_fields(now: int, minutes: int, *, what: Sequence[str] = WHAT) -> tuple[list[bytes], list[bytes]]:
    """Return the fields of the totals of the last minutes, of this hour and of the hour before.

    `now` is in minutes since 1970.
    """
    past = [now - ago for ago in range(min(minutes, now % 60 + 61))]
    this_hour = [minute % 60 for minute in past if minute // 60 == now // 60]
    last_hour = [minute % 60 for minute in past if minute // 60 != now // 60]
    return counter_fields(this_hour, what), counter_fields(last_hour, what)


def counter_fields(slots: Sequence[int], what: Sequence[str] = WHAT) -> list[bytes]:
    """Return the fields of the totals in the given minutes of an hour, or hours of a day."""
    return [f"{slot}|{word}|".encode() for slot in slots for word in what]


def added(hashes: Iterable[Mapping[bytes, bytes]]) -> Mapping[bytes, bytes]:
    """Return the sums of the counters of several hashes."""
    sums: Counter[bytes] = Counter()
    for fields in hashes:
        # Other programs may have written anything.
        sums.update({field: whole(value) or 0 for field, value in fields.items()})
    return {field: b"%d" % count for field, count in sums.items()}


def there(fields: Sequence[bytes], values: Sequence[bytes | None]) -> dict[bytes, bytes]:
    """Return the fields that have a value, with their values."""
    return {field: value for field, value in zip(fields, values, strict=True) if value is not None}


# Totals of counters that never decrease, for monitoring software.

#: Kinds of counters that have totals.
KINDS = (*WHAT, RECOVERED, *TOOK, *WAITED)

#: Days that a script call adds up, so that it is short.
DAYS = 3
#: The counters of an hour are kept for 35 days.
KEPT = 36

#: The total of each kind.
Totals = Mapping[str, int]


def read_totals(
    keys: Sequence[QueueKeys | TopicKeys], transports: Sequence[Transport], *, now_ms: int
) -> list[Totals | StoreError]:
    """Return the totals of queues and topics since their counters are kept; an error for one that cannot be read.

    The counters of hours that are over are added to a hash, in the same script, so that they survive their expiry. If
    nobody has read the totals for 35 days, they start again from the counters that are left. Counts of a program whose
    clock is more than an hour late may be missing.

    Args:
        keys: their keys, each with its transport.
        now_ms: the time of the servers, in ms since 1970.
    """
    today = now_ms // 86_400_000
    found: list[Totals | StoreError] = [{}] * len(keys)
    # The days before the current one are needed only after a pause: then some script calls catch up.
    days = dict.fromkeys(range(len(keys)), today - 1)
    for _ in range(2 * KEPT // DAYS):
        if not days:
            break
        pipelines = [[_command(keys[number], day, today - KEPT)] for number, day in days.items()]
        replies = fan_out([transports[number] for number in days], pipelines)
        behind = {}
        for number, (reply,) in zip(days, replies, strict=True):
            read = _read(reply)
            if isinstance(read, int):
                behind[number] = read // 24
            else:
                found[number] = read
        days = behind
    return found


def _command(keys: QueueKeys | TopicKeys, day: int, oldest: int) -> Command:
    names = [keys.totals, *(keys.hours(day + after) for after in range(DAYS))]
    return scripts.command("counters_totals", keys=names, args=[day, oldest * 24, *KINDS])


@readable
def _read(reply: Any) -> Totals | int:
    """Return the totals, or the hour at which the next call must begin."""
    hour, *sums = reply_or_raise(reply)
    if not sums:
        return whole(hour) or 0
    return {kind: whole(count) or 0 for kind, count in zip(KINDS, sums, strict=True)}
