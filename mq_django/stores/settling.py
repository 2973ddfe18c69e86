"""Outcomes to script calls: a batch of any mix is one round trip."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mq_django.core.attempt_history import MAX_DATA, MAX_TRACEBACK, attempt_of, with_attempt
from mq_django.core.keys import GroupKeys, QueueKeys
from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.outcomes import Ack, Bury, Expire, HandBack, Retry, SetAside
from mq_django.core.visible import line
from mq_django.core.wire import CHARGED, alone_of, encode_body, encode_entry, moment
from mq_django.stores.base import HomeEntry, Settlement
from mq_django.stores.waiting_room import name_score
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Wire, is_gone, reply_or_raise

#: Deliveries a script call settles. Redis serves nobody else meanwhile: about 2 ms at this size.
BATCH = 500

#: Bytes kept of what could not be decoded.
MAX_RAW = 64 * 1024


#: What a dead letter has beside the message's own fields.
DEAD_FIELDS = frozenset(
    ("deadreason", "deaderror", "deadtraceback", "deadattempts", "deadfirst", "deadraw", "deadbody", "deadstory")
)


def message_id(delivery: Delivery | Undecodable) -> str:
    """Return the id of what was delivered: the entry's when it is not a message."""
    return delivery.message.id if isinstance(delivery, Delivery) else line(delivery.entry)


class SettleCall(NamedTuple):
    """A script call, and what it settles."""

    command: Command
    settlements: Sequence[Settlement]


class Transition(NamedTuple):
    """How deliveries with one kind of outcome are settled."""

    script: str
    #: Its keys behind those of the receipts, by their names in `QueueKeys`.
    keys: tuple[str, ...]
    #: Returns its arguments behind the consumer, for these deliveries, settled for this consumer.
    arguments: Callable[[Sequence[Settlement], str, "Receipts"], list[Argument]]


@dataclass(frozen=True, slots=True)
class Receipts:
    """The deliveries of one stream, of a log or of an RSMQ queue: what tells who holds them, and what settles them."""

    queue: QueueKeys
    #: The first keys and arguments of all scripts.
    keys: tuple[str, ...]
    arguments: tuple[Argument, ...]
    transitions: Mapping[type, Transition]
    #: The script that passes deliveries on.
    passes: str
    #: For how many milliseconds deliveries are hidden, where that is how they are held.
    hidden_ms: tuple[int, ...] = ()
    #: Messages may hold unique keys until they are handled.
    claims: bool = False
    #: Returns the id under which a delivery is buried, also of what could not be decoded.
    id_of: Callable[[Delivery | Undecodable], Argument] = message_id


def stream_receipts(keys: QueueKeys, stream: str) -> Receipts:
    """Return how deliveries of one of a queue's streams are settled: what is settled is deleted."""
    return Receipts(keys, (stream,), (keys.group,), _STREAM, "stream_reassign", claims=True)


def log_receipts(keys: GroupKeys) -> Receipts:
    """Return how a group's deliveries of its topic's log are settled: what is settled is acked, and stays."""
    return Receipts(keys, (keys.topic.log, keys.control), (keys.group,), _LOG, "topic_reassign")


class Settling:
    """Settles the deliveries of a queue for its consumers."""

    def __init__(self, wire: Wire, receipts: Sequence[Receipts]) -> None:
        self._wire = wire
        #: By `Delivery.home`.
        self._receipts = receipts
        #: What the calls of a script begin with, by home and script.
        self._heads: dict[tuple[int, str], Command] = {}

    def settle(
        self,
        consumer: str,
        settlements: Sequence[Settlement],
        *,
        also: Sequence[Command] = (),
        then: Sequence[Command] = (),
    ) -> tuple[list[str], list[Any]]:
        """Settle a batch in one trip, with commands that run before and behind it.

        Returns the ids of the messages that the consumer no longer held, and the replies of the commands behind.
        """
        calls = self.calls(consumer, settlements)
        replies = self._wire.trip([*also, *(call.command for call in calls), *then])
        settled = len(also) + len(calls)
        return _stale(calls, replies[len(also) : settled]), replies[settled:]

    def calls(self, consumer: str, settlements: Sequence[Settlement]) -> list[SettleCall]:
        """Return the script calls that settle a batch."""
        calls: list[SettleCall] = []
        for (kind, home), group in self._groups(settlements).items():
            receipts = self._receipts[home]
            transition = receipts.transitions[kind]
            for at in range(0, len(group), BATCH):
                batch = group[at : at + BATCH]
                # First, because a key that outlived its message would be taken for ever.
                if receipts.claims and kind in _FINAL and (claimed := _claimed(batch)):
                    calls.append(SettleCall(self._command(home, "waiting_unclaim", ("claims",), consumer, claimed), ()))
                arguments = transition.arguments(batch, consumer, receipts)
                command = self._command(home, transition.script, transition.keys, consumer, arguments)
                calls.append(SettleCall(command, batch))
        return calls

    def _groups(self, settlements: Sequence[Settlement]) -> dict[tuple[type, int], list[Settlement]]:
        """Return settlements by the kind of their outcome and where their deliveries come from."""
        groups: dict[tuple[type, int], list[Settlement]] = {}
        several = len(self._receipts) > 1
        kind, home, group = None, -1, list[Settlement]()
        for settlement in settlements:
            # Mostly it is as the one before.
            if type(settlement.outcome) is not kind or (several and settlement.delivery.home != home):
                kind, home = type(settlement.outcome), settlement.delivery.home
                group = groups.setdefault((kind, home), [])
            group.append(settlement)
        return groups

    def pass_on(self, consumer: str, new_owner: str, receipts: Sequence[HomeEntry]) -> list[HomeEntry]:
        """Pass deliveries on to another consumer, or to the same; return those that the first no longer held."""
        homes: dict[int, list[bytes]] = defaultdict(list)
        for home, entry in receipts:
            homes[home].append(entry)
        calls = [(home, held[at : at + BATCH]) for home, held in homes.items() for at in range(0, len(held), BATCH)]
        commands = [self._pass_command(home, consumer, new_owner, batch) for home, batch in calls]
        lost: list[HomeEntry] = []
        for (home, batch), reply in zip(calls, self._wire.trip(commands) if commands else [], strict=True):
            lost += [(home, entry) for entry in (batch if is_gone(reply) else reply_or_raise(reply))]
        return lost

    def _pass_command(self, home: int, consumer: str, new_owner: str, batch: Sequence[bytes]) -> Command:
        receipts = self._receipts[home]
        return self._command(home, receipts.passes, (), consumer, (new_owner, *receipts.hidden_ms, *batch))

    def _command(
        self, home: int, script: str, keys: Sequence[str], consumer: str, arguments: Sequence[Argument]
    ) -> Command:
        head = self._heads.get((home, script))
        if head is None:
            receipts = self._receipts[home]
            key_names = [*receipts.keys, *(getattr(receipts.queue, name) for name in keys)]
            head = self._heads[home, script] = scripts.command(script, keys=key_names, args=receipts.arguments)
        return (*head, consumer, *arguments)


def _stale(calls: Sequence[SettleCall], replies: Sequence[object]) -> list[str]:
    """Return the ids of messages that the consumer no longer held, from the calls' replies."""
    stale = []
    for (_, settlements), reply in zip(calls, replies, strict=True):
        # Without its group a stream has no deliveries left: whoever flushed it took them from everybody.
        gone = is_gone(reply)
        lost = () if gone else reply_or_raise(reply)
        if gone or lost:
            stale += [message_id(s.delivery) for s in settlements if gone or s.delivery.entry in lost]
    return stale


def _claimed(batch: Sequence[Settlement]) -> list[Argument]:
    """Return the receipts and ids of the messages that hold a unique key."""
    try:
        claimed = [s.delivery for s in batch if s.delivery.message.claims]  # type: ignore[union-attr]
    except AttributeError:  # one could not be decoded; to ask each would cost all others
        claimed = [s.delivery for s in batch if isinstance(s.delivery, Delivery) and s.delivery.message.claims]
    return [argument for delivery in claimed for argument in (delivery.entry, message_id(delivery))]


def entries(batch: Sequence[Settlement], *_others: object) -> list[Argument]:
    """Return the receipt of each delivery."""
    return [settlement.delivery.entry for settlement in batch]


def _handed_back(batch: Sequence[Settlement], *_others: object) -> list[Argument]:
    """Return for each delivery: its receipt, the message's id and time, and what became of its consumer."""
    args: list[Argument] = []
    for delivery, outcome, *_ in batch:
        assert isinstance(delivery, Delivery)
        assert isinstance(outcome, HandBack)
        message = delivery.message
        time = "" if message.published_ms is None else message.published_ms
        args += (delivery.entry, message.id, time, mark_of(outcome))
    return args


def mark_of(outcome: HandBack) -> str:
    """Return how scripts call what a hand-back says of the message: "lost", "suspect" or ""."""
    return "lost" if outcome.lost else "suspect" if outcome.suspect else ""


def _retried(batch: Sequence[Settlement], consumer: str, receipts: Receipts) -> list[Argument]:
    """Return a channel, and for each delivery: its receipt, what it waits under, ms from now, the body."""
    args: list[Argument] = [receipts.queue.wake]
    for settlement in batch:
        delivery, outcome, delay_ms, *_ = settlement
        assert isinstance(delivery, Delivery)
        assert isinstance(outcome, Retry)
        again = delivery.message._replace(attempt=delivery.message.attempt + 1)
        # Under its own id, also when it was published under a unique key: that may be taken again by now.
        alone, history = CHARGED if outcome.alone else "", history_of(consumer, settlement)
        body = encode_body(again, delivery.data_text, member=again.id, alone=alone, history=history)
        args += (delivery.entry, again.id, delay_ms, body)
    return args


def _set_aside(batch: Sequence[Settlement], *_others: object) -> list[Argument]:
    """Return for each delivery: its receipt, what it waits under, the score of its name, the body."""
    args: list[Argument] = []
    for delivery, *_ in batch:
        assert isinstance(delivery, Delivery)
        message = delivery.message
        alone, history = alone_of(delivery), delivery.history
        body = encode_body(message, delivery.data_text, member=message.id, alone=alone, history=history)
        args += (delivery.entry, message.id, name_score(message.name), body)
    return args


def buried(batch: Sequence[Settlement], consumer: str, receipts: Receipts) -> list[Argument]:
    """Return for each delivery: its receipt, the message's id, the number of the dead letter's fields, and these."""
    args: list[Argument] = []
    for settlement in batch:
        delivery, outcome, *_ = settlement
        assert isinstance(outcome, Bury)
        known = receipts.id_of(delivery)
        fields: list[Argument] = [*_message_fields(delivery), *_why(delivery, outcome)]
        fields[1] = known
        if history := history_of(consumer, settlement):
            fields += ("deadstory", history)
        args += (delivery.entry, known, len(fields), *fields)
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


def _message_fields(delivery: Delivery | Undecodable) -> list[str | bytes]:
    """Return the fields of a dead letter that the message had, its id first."""
    if isinstance(delivery, Undecodable):
        return ["id", "", "deadraw", b"\n".join(delivery.fields)[:MAX_RAW]]
    headers = delivery.message.headers
    if not DEAD_FIELDS.isdisjoint(headers):
        # A header of the message must not be taken for what we say of it.
        others = {name: value for name, value in headers.items() if name not in DEAD_FIELDS}
        delivery = delivery._replace(message=delivery.message._replace(headers=others))
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

#: The keys of dead letters.
DEAD = ("dead", "dead_ids", "dead_groups")

_STREAM: Mapping[type, Transition] = {
    Ack: Transition("stream_ack", (), entries),
    Expire: Transition("stream_ack", (), entries),
    Retry: Transition("stream_retry", ("due", "waiting"), _retried),
    HandBack: Transition("stream_hand_back", ("ready", "urgent"), _handed_back),
    Bury: Transition("stream_bury", DEAD, buried),
    SetAside: Transition("stream_set_aside", ("unhandled", "waiting"), _set_aside),
}
_LOG: Mapping[type, Transition] = {
    Ack: Transition("topic_ack", (), entries),
    Expire: Transition("topic_ack", (), entries),
    Retry: Transition("topic_retry", ("due", "waiting"), _retried),
    HandBack: Transition("topic_hand_back", ("ready",), _handed_back),
    Bury: Transition("topic_bury", DEAD, buried),
    SetAside: Transition("topic_set_aside", ("unhandled", "waiting"), _set_aside),
}
