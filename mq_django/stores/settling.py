"""Settle deliveries: a batch with any mix of outcomes is one round trip."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mq_django.core.keys import GroupKeys, QueueKeys
from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.outcomes import Ack, Bury, Cancel, Expire, HandBack, Retry, SetAside, StepEnd
from mq_django.core.texts import line
from mq_django.core.wire import CHARGED, alone_of, encode_body
from mq_django.stores.base import Settlement, StreamEntry
from mq_django.stores.counters import ENDS, Slots, counters_of
from mq_django.stores.dead_letters import failure_fields, history_of, message_fields
from mq_django.stores.outbox_marks import Held, notes_of
from mq_django.stores.waiting_room import name_score
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Wire, is_gone, reply_or_raise

#: Deliveries that one script call settles. This blocks Redis for about 2 ms.
BATCH = 500


def message_id(delivery: Delivery | Undecodable) -> str:
    """Return the id of a message, or the entry id if it could not be decoded."""
    return delivery.message.id if isinstance(delivery, Delivery) else line(delivery.entry)


class SettleCall(NamedTuple):
    """A script call, and the deliveries it settles."""

    command: Command
    settlements: Sequence[Settlement]


class Transition(NamedTuple):
    """How deliveries with one kind of outcome are settled."""

    script: str
    #: Its keys after those of the receipts, by their names in `QueueKeys`.
    keys: tuple[str, ...]
    #: Returns its arguments after the consumer.
    arguments: Callable[[Sequence[Settlement], str, "Receipts"], list[Argument]]


@dataclass(frozen=True, slots=True)
class Receipts:
    """How deliveries of one stream, log or RSMQ queue are identified, held and settled."""

    queue: QueueKeys
    #: The first keys and arguments of all scripts.
    keys: tuple[str, ...]
    arguments: tuple[Argument, ...]
    transitions: Mapping[type, Transition]
    #: The script that reassigns and extends deliveries.
    reassign_script: str
    #: For RSMQ: the milliseconds for which held deliveries are hidden.
    hidden_ms: tuple[int, ...] = ()
    #: Messages may claim unique keys until they are handled.
    claims: bool = False
    #: Outboxes keep their rows until their messages have ended.
    keeps_rows: bool = False
    #: Returns the id of the dead letter of a delivery, also if it could not be decoded.
    id_of: Callable[[Delivery | Undecodable], Argument] = message_id


def stream_receipts(keys: QueueKeys, stream: str, *, keeps_rows: bool = False) -> Receipts:
    """Return the receipts of one of a queue's streams. Settled entries are deleted."""
    return Receipts(keys, (stream,), (keys.group,), _STREAM, "stream_reassign", claims=True, keeps_rows=keeps_rows)


def line_receipts(keys: QueueKeys, stream: str, *, keeps_rows: bool = False) -> Receipts:
    """Return the receipts of one of the streams of a queue with lines. Settled entries are deleted."""
    own = (stream, keys.permits, keys.parked, keys.next_checks, keys.control)
    return Receipts(keys, own, (keys.group,), _LINES, "lines_reassign", claims=True, keeps_rows=keeps_rows)


def log_receipts(keys: GroupKeys) -> Receipts:
    """Return the receipts of a group's deliveries of its topic's log. Settled entries are acked, not deleted."""
    return Receipts(keys, (keys.topic.log, keys.control), (keys.group,), _LOG, "topic_reassign")


class Settling:
    """Settles the deliveries of a queue for its consumers."""

    def __init__(self, wire: Wire, receipts: Sequence[Receipts]) -> None:
        self._wire = wire
        #: By `Delivery.stream`.
        self._receipts = receipts
        #: The first parts of commands, which are the same for each stream and script.
        self._heads: dict[tuple[int, str], Command] = {}
        self._slots = Slots(receipts[0].queue)
        #: The keys of the counters in these parts, which change every hour.
        self._counters: tuple[str, ...] = ()

    def settle(
        self,
        consumer: str,
        settlements: Sequence[Settlement],
        *,
        also: Sequence[Command] = (),
        then: Sequence[Command] = (),
    ) -> tuple[list[str], list[Any]]:
        """Settle a batch in one round trip, with commands that run before it (`also`) and after it (`then`).

        Returns the ids of the messages that the consumer no longer held, and the replies of the commands after it.
        """
        calls = self.calls(consumer, settlements)
        replies = self._wire.trip([*also, *(call.command for call in calls), *then])
        settled = len(also) + len(calls)
        return _stale(calls, replies[len(also) : settled]), replies[settled:]

    def calls(self, consumer: str, settlements: Sequence[Settlement]) -> list[SettleCall]:
        """Return the script calls that settle a batch."""
        calls: list[SettleCall] = []
        where = self._slots.now()
        if where.keys != self._counters:
            self._counters, self._heads = where.keys, {}
        for (kind, stream), group in self._grouped(settlements).items():
            receipts = self._receipts[stream]
            transition = receipts.transitions[kind]
            counts = kind in ENDS
            for at in range(0, len(group), BATCH):
                batch, counters = group[at : at + BATCH], list[Argument]()
                if counts:
                    batch, counters = counters_of(where, batch)
                if kind is Expire or receipts.keeps_rows:
                    notes = _notes(kind, receipts, batch, consumer)
                    calls += [SettleCall(note, ()) for note in notes]
                # First, because a claim that outlived its message would block the key.
                if receipts.claims and kind in _FINAL and (claimed := _claimed(batch)):
                    unclaim = self._command(stream, "waiting_unclaim", ("claims",), consumer, claimed)
                    calls.append(SettleCall(unclaim, ()))
                arguments = (*transition.arguments(batch, consumer, receipts), *counters)
                command = self._command(stream, transition.script, transition.keys, consumer, arguments, counts=counts)
                calls.append(SettleCall(command, batch))
        return calls

    def _grouped(self, settlements: Sequence[Settlement]) -> dict[tuple[type, int], list[Settlement]]:
        """Return settlements by the type of their outcome and their stream."""
        groups: dict[tuple[type, int], list[Settlement]] = {}
        several = len(self._receipts) > 1
        kind, stream, group = None, -1, list[Settlement]()
        for settlement in settlements:
            # Most settlements have the group of the one before.
            if type(settlement.outcome) is not kind or (several and settlement.delivery.stream != stream):
                kind, stream = type(settlement.outcome), settlement.delivery.stream
                group = groups.setdefault((kind, stream), [])
            group.append(settlement)
        return groups

    def reassign(self, consumer: str, new_owner: str, receipts: Sequence[StreamEntry]) -> list[StreamEntry]:
        """Reassign deliveries to another consumer, or extend those of the same; return those it no longer held."""
        streams: dict[int, list[bytes]] = defaultdict(list)
        for stream, entry in receipts:
            streams[stream].append(entry)
        calls = [
            (stream, held[at : at + BATCH]) for stream, held in streams.items() for at in range(0, len(held), BATCH)
        ]
        commands = [self._reassign_command(stream, consumer, new_owner, batch) for stream, batch in calls]
        lost: list[StreamEntry] = []
        for (stream, batch), reply in zip(calls, self._wire.trip(commands) if commands else [], strict=True):
            lost += [(stream, entry) for entry in (batch if is_gone(reply) else reply_or_raise(reply))]
        return lost

    def _reassign_command(self, stream: int, consumer: str, new_owner: str, batch: Sequence[bytes]) -> Command:
        receipts = self._receipts[stream]
        return self._command(stream, receipts.reassign_script, (), consumer, (new_owner, *receipts.hidden_ms, *batch))

    def _command(
        self,
        stream: int,
        script: str,
        keys: Sequence[str],
        consumer: str,
        arguments: Sequence[Argument],
        *,
        counts: bool = False,
    ) -> Command:
        head = self._heads.get((stream, script))
        if head is None:
            receipts = self._receipts[stream]
            # A claim is released in the same way in a queue with lines.
            own = receipts.keys[:1] if script == "waiting_unclaim" else receipts.keys
            key_names = [*own, *(getattr(receipts.queue, name) for name in keys)]
            if counts:
                key_names += self._counters
            head = self._heads[stream, script] = scripts.command(script, keys=key_names, args=receipts.arguments)
        return (*head, consumer, *arguments)


def _stale(calls: Sequence[SettleCall], replies: Sequence[object]) -> list[str]:
    """Return the ids of messages that the consumer no longer held, from the calls' replies."""
    stale = []
    for (_, settlements), reply in zip(calls, replies, strict=True):
        # A stream without its group was flushed: no consumer holds any of its deliveries.
        gone = is_gone(reply)
        lost = () if gone else reply_or_raise(reply)
        if gone or lost:
            stale += [message_id(s.delivery) for s in settlements if gone or s.delivery.entry in lost]
    return stale


def _notes(kind: type, receipts: Receipts, batch: Sequence[Settlement], consumer: str) -> list[Command]:
    """Return the commands that note what becomes of messages, those of a stream or log only if they are still held."""
    known, entries_of = [receipts.id_of(each.delivery) for each in batch], [each.delivery.entry for each in batch]
    held = Held(receipts.keys[0], receipts.arguments[0], consumer, entries_of) if receipts.arguments else None
    return notes_of(kind, receipts.queue, known, receipts.keeps_rows, held)


def _claimed(batch: Sequence[Settlement]) -> list[Argument]:
    """Return the receipts and ids of the messages that claim a unique key."""
    try:
        claimed = [s.delivery for s in batch if s.delivery.message.claims]  # type: ignore[union-attr]
    except AttributeError:  # one could not be decoded; checking each would slow down all other batches
        claimed = [s.delivery for s in batch if isinstance(s.delivery, Delivery) and s.delivery.message.claims]
    return [argument for delivery in claimed for argument in (delivery.entry, message_id(delivery))]


def entries(batch: Sequence[Settlement], *_others: object) -> list[Argument]:
    """Return the receipt of each delivery."""
    return [settlement.delivery.entry for settlement in batch]


def _noted(batch: Sequence[Settlement], *_others: object) -> list[Argument]:
    """Return for each delivery of a step: its receipt, the message's id, the event, the added steps, the value."""
    args: list[Argument] = []
    for delivery, outcome, *_ in batch:
        assert isinstance(outcome, StepEnd)
        args += (delivery.entry, message_id(delivery), outcome.event, outcome.added, outcome.value)
    return args


def _handed_back(batch: Sequence[Settlement], *_others: object) -> list[Argument]:
    """Return for each delivery: its receipt, the message's id and time, its mark."""
    args: list[Argument] = []
    for delivery, outcome, *_ in batch:
        assert isinstance(delivery, Delivery)
        assert isinstance(outcome, HandBack)
        message = delivery.message
        time = "" if message.published_ms is None else message.published_ms
        args += (delivery.entry, message.id, time, mark_of(outcome))
    return args


def mark_of(outcome: HandBack) -> str:
    """Return the mark of a hand-back for scripts: "lost", "suspect" or ""."""
    return "lost" if outcome.lost else "suspect" if outcome.suspect else ""


def _retried(batch: Sequence[Settlement], consumer: str, receipts: Receipts) -> list[Argument]:
    """Return a channel, and for each delivery: its receipt, its member, ms from now, the body."""
    args: list[Argument] = [receipts.queue.wake]
    for settlement in batch:
        delivery, outcome, delay_ms, *_ = settlement
        assert isinstance(delivery, Delivery)
        assert isinstance(outcome, Retry)
        again = delivery.message._replace(attempt=delivery.message.attempt + (not settlement.uncharged))
        # By its id, even if it was published under a unique key: another message may use that by now.
        alone, history = CHARGED if settlement.alone else "", history_of(consumer, settlement)
        body = encode_body(again, delivery.data_text, member=again.id, alone=alone, history=history)
        args += (delivery.entry, again.id, delay_ms, body)
    return args


def _set_aside(batch: Sequence[Settlement], *_others: object) -> list[Argument]:
    """Return for each delivery: its receipt, its member, the score of its name, the body."""
    args: list[Argument] = []
    for delivery, *_ in batch:
        assert isinstance(delivery, Delivery)
        message = delivery.message
        alone, history = alone_of(delivery), delivery.history
        body = encode_body(message, delivery.data_text, member=message.id, alone=alone, history=history)
        args += (delivery.entry, message.id, name_score(message.name), body)
    return args


def _cancelled(batch: Sequence[Settlement], *_others: object) -> list[Argument]:
    """Return for each delivery: its receipt, the message's id."""
    return [argument for delivery, *_ in batch for argument in (delivery.entry, message_id(delivery))]


def buried(batch: Sequence[Settlement], consumer: str, receipts: Receipts) -> list[Argument]:
    """Return for each delivery: its receipt, the message's id, the number of the dead letter's fields, and these."""
    args: list[Argument] = []
    for settlement in batch:
        delivery, outcome, *_ = settlement
        assert isinstance(outcome, Bury)
        known = receipts.id_of(delivery)
        fields: list[Argument] = [*message_fields(delivery), *failure_fields(delivery, outcome)]
        fields[1] = known
        if history := history_of(consumer, settlement):
            fields += ("deadstory", history)
        args += (delivery.entry, known, len(fields), *fields)
    return args


#: Outcomes after which the message is not delivered again.
_FINAL = frozenset({Ack, StepEnd, Expire, Bury, Cancel})

#: The keys of dead letters.
DEAD = ("dead", "dead_ids", "dead_groups")

_STREAM: Mapping[type, Transition] = {
    Ack: Transition("stream_ack", (), entries),
    StepEnd: Transition("steps_ack", ("step_notes",), _noted),
    Expire: Transition("stream_ack", (), entries),
    Cancel: Transition("stream_cancel", ("cancels", "step_notes"), _cancelled),
    Retry: Transition("stream_retry", ("due", "waiting"), _retried),
    HandBack: Transition("stream_hand_back", ("ready", "urgent"), _handed_back),
    Bury: Transition("stream_bury", (*DEAD, "step_notes"), buried),
    SetAside: Transition("stream_set_aside", ("unhandled", "waiting"), _set_aside),
}
_LINES: Mapping[type, Transition] = {
    kind: transition._replace(script=transition.script.replace("stream_", "lines_").replace("steps_", "lines_steps_"))
    for kind, transition in _STREAM.items()
}
_LOG: Mapping[type, Transition] = {
    Ack: Transition("topic_ack", (), entries),
    Expire: Transition("topic_ack", (), entries),
    Retry: Transition("topic_retry", ("due", "waiting"), _retried),
    HandBack: Transition("topic_hand_back", ("ready",), _handed_back),
    Bury: Transition("topic_bury", DEAD, buried),
    SetAside: Transition("topic_set_aside", ("unhandled", "waiting"), _set_aside),
}
