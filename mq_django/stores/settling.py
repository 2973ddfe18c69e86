"""Outcomes to script calls: a batch of any mix is one round trip."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from mq_django.core.attempt_history import MAX_DATA, MAX_TRACEBACK, attempt_of, with_attempt
from mq_django.core.keys import QueueKeys
from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.outcomes import Ack, Bury, Expire, HandBack, Retry, SetAside
from mq_django.core.visible import line
from mq_django.core.wire import CHARGED, alone_of, encode_body, encode_entry, moment
from mq_django.stores.base import Settlement
from mq_django.stores.waiting_room import name_score
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command

#: Deliveries a script call settles. Redis serves nobody else meanwhile: about 2 ms at this size.
BATCH = 500

#: Bytes kept of what could not be decoded.
MAX_RAW = 64 * 1024


#: What a dead letter has beside the message's own fields.
DEAD_FIELDS = frozenset(
    ("deadreason", "deaderror", "deadtraceback", "deadattempts", "deadfirst", "deadraw", "deadbody", "deadstory")
)


class SettleCall(NamedTuple):
    """A script call, and what it settles."""

    command: Command
    settlements: Sequence[Settlement]


def settle_calls(keys: QueueKeys, consumer: str, settlements: Sequence[Settlement]) -> list[SettleCall]:
    """Return the script calls that settle a batch for a consumer."""
    groups: dict[tuple[type, int], list[Settlement]] = defaultdict(list)
    for settlement in settlements:
        groups[type(settlement.outcome), settlement.delivery.home].append(settlement)
    calls: list[SettleCall] = []
    for (kind, number), group in groups.items():
        build, home = _BUILDERS[kind], keys.homes()[number]
        for at in range(0, len(group), BATCH):
            some = group[at : at + BATCH]
            # First, because a key that outlived its message would be taken for ever.
            if kind in _FINAL:
                calls += _unclaim(keys, home, consumer, some)
            calls.append(SettleCall(build(keys, home, consumer, some), some))
    return calls


def _unclaim(keys: QueueKeys, home: str, consumer: str, some: Sequence[Settlement]) -> Iterator[SettleCall]:
    """Yield the call that lets go of unique keys, if any of the messages has one."""
    try:
        claimed = [s.delivery for s in some if s.delivery.message.claims]  # type: ignore[union-attr]
    except AttributeError:  # one could not be decoded; to ask each would cost all others
        claimed = [s.delivery for s in some if isinstance(s.delivery, Delivery) and s.delivery.message.claims]
    if claimed:
        args: list[Argument] = [keys.group, consumer]
        for delivery in claimed:
            args += (delivery.entry, message_id(delivery))
        yield SettleCall(scripts.command("waiting_unclaim", keys=[home, keys.claims], args=args), ())


def _ack(keys: QueueKeys, home: str, consumer: str, some: Sequence[Settlement]) -> Command:
    entries = [settlement.delivery.entry for settlement in some]
    return scripts.command("stream_ack", keys=[home], args=[keys.group, consumer, *entries])


def _hand_back(keys: QueueKeys, home: str, consumer: str, some: Sequence[Settlement]) -> Command:
    args = [keys.group, consumer, *hand_back_args(some)]
    return scripts.command("stream_hand_back", keys=[home, keys.ready, keys.urgent], args=args)


def hand_back_args(some: Sequence[Settlement]) -> list[Argument]:
    """Return for each delivery: its receipt, the message's id and time, and what became of its consumer."""
    args: list[Argument] = []
    for delivery, outcome, *_ in some:
        assert isinstance(delivery, Delivery)
        assert isinstance(outcome, HandBack)
        message = delivery.message
        time = "" if message.published_ms is None else message.published_ms
        args += (delivery.entry, message.id, time, mark_of(outcome))
    return args


def mark_of(outcome: HandBack) -> str:
    """Return how scripts call what a hand-back says of the message: "lost", "suspect" or ""."""
    return "lost" if outcome.lost else "suspect" if outcome.suspect else ""


def _retry(keys: QueueKeys, home: str, consumer: str, some: Sequence[Settlement]) -> Command:
    args = [keys.group, consumer, keys.wake, *retry_args(consumer, some)]
    return scripts.command("stream_retry", keys=[home, keys.due, keys.waiting], args=args)


def retry_args(consumer: str, some: Sequence[Settlement]) -> list[Argument]:
    """Return for each delivery: its receipt, what it waits under, ms from now, the body."""
    args: list[Argument] = []
    for settlement in some:
        delivery, outcome, delay_ms, *_ = settlement
        assert isinstance(delivery, Delivery)
        assert isinstance(outcome, Retry)
        again = delivery.message._replace(attempt=delivery.message.attempt + 1)
        # Under its own id, also when it was published under a unique key: that may be taken again by now.
        alone, told = CHARGED if outcome.alone else "", history_of(consumer, settlement)
        body = encode_body(again, delivery.data_text, member=again.id, alone=alone, history=told)
        args += (delivery.entry, again.id, delay_ms, body)
    return args


def _set_aside(keys: QueueKeys, home: str, consumer: str, some: Sequence[Settlement]) -> Command:
    args = [keys.group, consumer, *set_aside_args(some)]
    return scripts.command("stream_set_aside", keys=[home, keys.unhandled, keys.waiting], args=args)


def set_aside_args(some: Sequence[Settlement]) -> list[Argument]:
    """Return for each delivery: its receipt, what it waits under, the score of its name, the body."""
    args: list[Argument] = []
    for delivery, *_ in some:
        assert isinstance(delivery, Delivery)
        message = delivery.message
        alone, told = alone_of(delivery), delivery.history
        body = encode_body(message, delivery.data_text, member=message.id, alone=alone, history=told)
        args += (delivery.entry, message.id, name_score(message.name), body)
    return args


def _bury(keys: QueueKeys, home: str, consumer: str, some: Sequence[Settlement]) -> Command:
    args = [keys.group, consumer, *bury_args(consumer, some)]
    return scripts.command("stream_bury", keys=[home, keys.dead, keys.dead_ids, keys.dead_groups], args=args)


def bury_args(consumer: str, some: Sequence[Settlement]) -> list[Argument]:
    """Return for each delivery: its receipt, the message's id, the number of the dead letter's fields, and these."""
    args: list[Argument] = []
    for settlement in some:
        delivery, outcome, *_ = settlement
        assert isinstance(outcome, Bury)
        fields = [*_told(delivery), *_why(delivery, outcome)]
        if told := history_of(consumer, settlement):
            fields += ("deadstory", told)
        args += (delivery.entry, message_id(delivery), len(fields), *fields)
    return args


def history_of(consumer: str, settlement: Settlement) -> str:
    """Return the history of a message that failed, with this attempt; empty when it is none, or too long for one."""
    delivery, outcome, _, micros, _ = settlement
    assert isinstance(outcome, Retry | Bury)
    if isinstance(delivery, Undecodable) or len(delivery.data_text) > MAX_DATA:
        return ""
    attempt = attempt_of(
        attempt=delivery.message.attempt,
        consumer=consumer,
        ending="retried" if isinstance(outcome, Retry) else "buried",
        error=outcome.error,
        # Of a dead letter it stands in a field of its own, which a redrive puts here.
        traceback=outcome.traceback if isinstance(outcome, Retry) else None,
        micros=micros,
    )
    return with_attempt(delivery.history, attempt)


def _told(delivery: Delivery | Undecodable) -> list[str | bytes]:
    if isinstance(delivery, Undecodable):
        # With an id, as every dead letter has: the one it is found by in `dead_ids`.
        return ["id", delivery.entry, "deadraw", b"\n".join(delivery.fields)[:MAX_RAW]]
    headers = delivery.message.headers
    if not DEAD_FIELDS.isdisjoint(headers):
        # A stranger's header must not speak for us.
        kept = {name: value for name, value in headers.items() if name not in DEAD_FIELDS}
        delivery = delivery._replace(message=delivery.message._replace(headers=kept))
    fields = encode_entry(delivery.message, delivery.data_text)
    if delivery.message.published_ms is not None:
        fields += ("time", moment(delivery.message.published_ms))
    return fields


def _why(delivery: Delivery | Undecodable, outcome: Bury) -> list[str | bytes]:
    message = delivery.message if isinstance(delivery, Delivery) else None
    first = message.published_ms if message else None
    return [
        *("deadreason", outcome.reason),
        *("deaderror", outcome.error[:MAX_TRACEBACK].encode(errors="replace")),
        *("deadtraceback", outcome.traceback[-MAX_TRACEBACK:].encode(errors="replace")),
        *("deadattempts", str(message.attempt if message else 1)),
        *("deadfirst", str(first or "")),
    ]


#: What ends a message's life.
_FINAL = frozenset({Ack, Expire, Bury})

_Builder = Callable[[QueueKeys, str, str, Sequence[Settlement]], Command]
_BUILDERS: dict[type, _Builder] = {
    Ack: _ack,
    Expire: _ack,
    Retry: _retry,
    HandBack: _hand_back,
    Bury: _bury,
    SetAside: _set_aside,
}


def calls_of(
    settlements: Sequence[Settlement], build: Callable[[type, Sequence[Settlement]], Command]
) -> list[SettleCall]:
    """Return the calls of a batch, those of one kind of outcome together, each built by `build(kind, some)`."""
    kinds: dict[type, list[Settlement]] = defaultdict(list)
    for settlement in settlements:
        kinds[type(settlement.outcome)].append(settlement)
    return [
        SettleCall(build(kind, group[at : at + BATCH]), group[at : at + BATCH])
        for kind, group in kinds.items()
        for at in range(0, len(group), BATCH)
    ]


def message_id(delivery: Delivery | Undecodable) -> str:
    """Return the id of what was delivered: the entry's when it is not a message."""
    return delivery.message.id if isinstance(delivery, Delivery) else line(delivery.entry)


def stale_ids(calls: Sequence[SettleCall], replies: Sequence[object]) -> list[str]:
    """Return the ids of messages that the consumer no longer held, from the calls' replies."""
    stale = []
    for call, reply in zip(calls, replies, strict=True):
        lost = set(reply) if isinstance(reply, list) else set()
        if lost:
            stale += [message_id(s.delivery) for s in call.settlements if s.delivery.entry in lost]
    return stale
