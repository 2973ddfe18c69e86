"""Settle deliveries: a batch with any mix of outcomes is one round trip.

All that belongs to an outcome is one call of `lua/settle.lua`: the move, results, history, counters, claims and notes.
How deliveries are identified and where they go depends on the form of the queue: see `Receipts` and `OUTCOMES`.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mq_django.conf import QueueConfig
from mq_django.core.breakers import hold_score
from mq_django.core.keys import GroupKeys, QueueKeys, key_name
from mq_django.core.logs import get_logger
from mq_django.core.message_format import CHARGED, alone_of, encode_body
from mq_django.core.message_streams import RunStream
from mq_django.core.messages import (
    Ack,
    Bury,
    Cancel,
    Delivery,
    Expire,
    HandBack,
    Park,
    Retry,
    SetAside,
    StepDrop,
    StepEnd,
    Undecodable,
)
from mq_django.core.retries import attempts_since
from mq_django.core.texts import line
from mq_django.errors import ConnectionLost, ServerBusy, StoreError
from mq_django.stores.base import NOTHING, Also, Settlement, StreamEntry
from mq_django.stores.counters import ENDS, Slots, counters_of
from mq_django.stores.dead_letters import failure_fields, history_of, message_fields
from mq_django.stores.handled import history_of_batch
from mq_django.stores.message_streams import CHUNKS, AppendCall, append_calls, ends_of_batch
from mq_django.stores.results import results_of_batch
from mq_django.stores.waiting import name_score
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport, is_gone, reply_or_raise

logger = get_logger(__name__)

#: Deliveries that a script call settles. This blocks Redis for about 2 ms.
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

    #: The script's word for the outcome.
    word: str
    #: The keys that it needs, by their names in `QueueKeys`.
    keys: tuple[str, ...] = ()
    #: Returns its lists, as arguments of the script, without the ids of the messages.
    lists: "Callable[[Sequence[Settlement], str, Receipts], list[Argument]] | None" = None
    needs_ids: bool = True


@dataclass(frozen=True, slots=True)
class Receipts:
    """How deliveries of one stream, log or RSMQ queue are identified, held and settled."""

    queue: QueueKeys
    #: The keys that say which form it has, by the names that the scripts use.
    keys: Mapping[str, str]
    group: str
    transitions: Mapping[type, Transition]
    #: For RSMQ: the milliseconds for which held deliveries are hidden.
    hidden_ms: int = 0
    #: Messages may claim unique keys until they are handled.
    claims: bool = False
    #: Outboxes keep their rows until their messages have ended.
    keeps_rows: bool = False
    #: Returns the id of the dead letter of a delivery, also if it could not be decoded.
    id_of: Callable[[Delivery | Undecodable], Argument] = message_id

    def keys_for(self, kind: type, *, keeps_history: bool) -> dict[str, str]:
        """Return the keys of the script for a kind of outcome, by name."""
        further = [*self.transitions[kind].keys]
        if kind is Expire:
            further.append("expired")
        if kind in FINAL and self.claims:
            further.append("claims")
        if kind in ROW_ENDS and self.keeps_rows:
            further.append("ended")
        if kind in FINAL and keeps_history:
            further += ("handled", "handled_ids")
        return {**self.keys, **{key_name(each): getattr(self.queue, each) for each in further}}


def stream_receipts(keys: QueueKeys, stream: str, *, keeps_rows: bool = False) -> Receipts:
    """Return the receipts of one of a queue's streams. Settled entries are deleted."""
    return Receipts(keys, {"stream": stream}, keys.group, _STREAM, claims=True, keeps_rows=keeps_rows)


def line_receipts(keys: QueueKeys, stream: str, *, keeps_rows: bool = False) -> Receipts:
    """Return the receipts of one of the streams of a queue with lines. Settled entries are deleted."""
    own = {key_name(each): getattr(keys, each) for each in ("permits", "parked", "next_checks", "control")}
    return Receipts(keys, {"stream": stream, **own}, keys.group, _STREAM, claims=True, keeps_rows=keeps_rows)


def log_receipts(keys: GroupKeys) -> Receipts:
    """Return the receipts of a group's deliveries of its topic's log. Settled entries are acked, not deleted."""
    return Receipts(keys, {"log": keys.topic.log, "control": keys.control}, keys.group, _LOG)


class _Head(NamedTuple):
    """What the calls for a stream and a kind of outcome share."""

    keys: tuple[str, ...]
    #: The arguments before the consumer.
    arguments: tuple[Argument, ...]
    #: Its messages may claim unique keys.
    claims: bool
    keeps_history: bool
    needs_ids: bool
    #: It ends the streams of its messages.
    ends: bool


class Settling:
    """Settles the deliveries of a queue for its consumers.

    Args:
        transport: sends the commands.
        config: the queue.
        receipts: how its deliveries are settled, by `Delivery.stream`.
    """

    def __init__(self, transport: Transport, config: QueueConfig, receipts: Sequence[Receipts]) -> None:
        self._transport = transport
        self._config = config
        self._receipts = receipts
        self._heads: dict[tuple[type, int], _Head] = {}
        self._slots = Slots(receipts[0].queue)
        #: The keys of the counters in these parts, which change every hour.
        self._counters: tuple[str, ...] = ()
        #: The errors of last chunks that are logged.
        self._logged: set[type] = set()

    def settle(
        self,
        consumer: str,
        settlements: Sequence[Settlement],
        *,
        also: Also = NOTHING,
        then: Sequence[Command] = (),
    ) -> tuple[list[str], list[Any]]:
        """Settle a batch in one round trip, with what is done also, and with commands that run after it (`then`).

        Chunks that are not sent are appended before it, in a round trip of their own.

        Returns the ids of the messages that the consumer no longer held, and the replies of the commands after it.
        """
        if also.streamed:
            self._append_last(consumer, also.streamed)
        calls = self.calls(consumer, settlements, also)
        before, settled = len(also.commands), len(also.commands) + len(calls)
        replies = self._transport.pipeline([*also.commands, *(call.command for call in calls), *then])
        return _stale(calls, replies[before:settled]), replies[settled:]

    def _append_last(self, consumer: str, runs: Sequence[tuple[Delivery, RunStream]]) -> None:
        """Append what runs have not sent before their messages are settled.

        In a round trip of its own: a server that is loading its data may refuse this, and then settle the messages.
        """
        appends = [*self._append_calls(consumer, runs)]
        replies = self._transport.pipeline([command for command, _ in appends]) if appends else []
        for (_, call), reply in zip(appends, replies, strict=True):
            try:
                self._appended(call, reply)
            except (ConnectionLost, ServerBusy):
                raise
            except StoreError as error:
                if type(error) not in self._logged:
                    self._logged.add(type(error))
                    logger.warning("Last chunks of streams of queue %s are lost: %s", self._config.name, error)

    def calls(self, consumer: str, settlements: Sequence[Settlement], also: Also) -> list[SettleCall]:
        """Return the script calls that settle a batch. The first one that counts adds what is counted also."""
        where, counts = self._slots.now(), also.counts
        streamed = {(delivery.stream, delivery.entry) for delivery, _ in also.streamed} if also.streamed else _NO_RUNS
        if where.keys != self._counters:
            self._counters, self._heads = where.keys, {}
        calls: list[SettleCall] = []
        for (kind, stream), group in self._grouped(settlements).items():
            for at in range(0, len(group), BATCH):
                batch, counters = group[at : at + BATCH], list[Argument]()
                if kind in ENDS:
                    batch, counters = counters_of(where, batch)
                    counters = listed("counters", counters)
                    if counts:
                        counters += listed("counts", [word for each in counts.items() for word in (*each[0], each[1])])
                        counts = {}
                command = self._command(consumer, kind, stream, batch, counters, streamed)
                calls.append(SettleCall(command, batch))
        return calls

    def _command(
        self,
        consumer: str,
        kind: type,
        stream: int,
        batch: Sequence[Settlement],
        counters: Sequence[Argument],
        streamed: Collection[StreamEntry],
    ) -> Command:
        head = self._heads.get((kind, stream)) or self._head(kind, stream)
        receipts, keys = self._receipts[stream], head.keys
        entries = [settlement.delivery.entry for settlement in batch]
        arguments: list[Argument] = [*head.arguments, consumer, len(batch), *entries]
        claims = claimed(batch) if head.claims else ()
        if head.needs_ids or claims:
            arguments += ("ids", len(batch), *[receipts.id_of(settlement.delivery) for settlement in batch])
        if (lists := receipts.transitions[kind].lists) is not None:
            arguments += lists(batch, consumer, receipts)
        if claims:
            arguments += listed("claims", claims)
        if head.keeps_history:
            arguments += listed("handled", history_of_batch(self._config, consumer, batch))
        if head.ends:
            streams, ends = ends_of_batch(self._config, batch, streamed)
            keys = (*keys, *streams)
            arguments += listed("ends", ends)
        if self._config.keeps_results and any([s.keeps_result for s in batch]):  # noqa: C419 - a list is faster
            results, lines = results_of_batch(self._config, consumer, batch)
            if results:
                keys = (*keys, *results, self._config.keys.waiters)
                arguments += (*listed("results", lines), "channel", 1, self._config.keys.results_channel(""))
        arguments += counters
        return scripts.command("settle", keys=keys, args=arguments)

    def _head(self, kind: type, stream: int) -> _Head:
        receipts, config = self._receipts[stream], self._config
        transition = receipts.transitions[kind]
        keeps_history = kind in FINAL and config.history is not None
        keys = receipts.keys_for(kind, keeps_history=keeps_history)
        if kind in ENDS:
            keys |= zip(("minutes", "hours"), self._counters, strict=True)
        needs_ids = transition.needs_ids or keeps_history or "expired" in keys or "ended" in keys
        arguments = (transition.word, " ".join(keys), receipts.group)
        ends = kind in FINAL and config.stream is not None
        claims = receipts.claims and kind in FINAL
        head = _Head(tuple(keys.values()), arguments, claims, keeps_history, needs_ids, ends)
        self._heads[kind, stream] = head
        return head

    def _grouped(self, settlements: Sequence[Settlement]) -> Mapping[tuple[type, int], Sequence[Settlement]]:
        """Return settlements by the type of their outcome and their stream."""
        kinds = {(type(each.outcome), each.delivery.stream) for each in settlements}
        if len(kinds) == 1:
            return {kinds.pop(): settlements}
        groups: dict[tuple[type, int], list[Settlement]] = defaultdict(list)
        for settlement in settlements:
            groups[type(settlement.outcome), settlement.delivery.stream].append(settlement)
        return groups

    def reassign(self, consumer: str, new_owner: str, receipts: Sequence[StreamEntry]) -> list[StreamEntry]:
        """Reassign deliveries to another consumer, or extend them for the same; return those that it no longer held."""
        streams: dict[int, list[bytes]] = defaultdict(list)
        for stream, entry in receipts:
            streams[stream].append(entry)
        calls = [
            (stream, held[at : at + BATCH]) for stream, held in streams.items() for at in range(0, len(held), BATCH)
        ]
        commands = [self._reassign_command(stream, consumer, new_owner, batch) for stream, batch in calls]
        lost: list[StreamEntry] = []
        for (stream, batch), reply in zip(calls, self._transport.pipeline(commands) if commands else [], strict=True):
            lost += [(stream, entry) for entry in (batch if is_gone(reply) else reply_or_raise(reply))]
        return lost

    def append(self, consumer: str, runs: Sequence[tuple[Delivery, RunStream]]) -> None:
        """Append what runs have not sent to the streams of their messages, of each a part.

        Raises:
            StoreError: Redis cannot be reached, or refuses a command. What is not appended stays unsent.
        """
        for command, call in self._append_calls(consumer, runs, CHUNKS):
            self._appended(call, self._transport.pipeline([command])[0])

    def _append_calls(
        self, consumer: str, runs: Sequence[tuple[Delivery, RunStream]], most: int | None = None
    ) -> Iterator[tuple[Command, AppendCall]]:
        for number, own in enumerate(self._receipts):
            for call in append_calls([each for each in runs if each[0].stream == number], most):
                yield call.command(self._config, own.keys, own.group, consumer), call

    def _appended(self, call: AppendCall, reply: object) -> None:
        # A stream without its group was flushed: no consumer holds any of its deliveries.
        call.done(self._config, [-1] * len(call.runs) if is_gone(reply) else reply_or_raise(reply))

    def _reassign_command(self, stream: int, consumer: str, new_owner: str, batch: Sequence[bytes]) -> Command:
        own = self._receipts[stream]
        args: list[Argument] = [" ".join(own.keys), own.group, consumer, new_owner, own.hidden_ms, *batch]
        return scripts.command("reassign", keys=[*own.keys.values()], args=args)


class Settles:
    """What a store does with deliveries, whatever its form: see `mq_django.stores.base.Store` for each method."""

    _settling: Settling

    def admit(self, consumer: str, deliveries: Sequence[Delivery | Undecodable]) -> Sequence[Delivery | Undecodable]:
        """See Store.admit(): there are no limits here."""
        return deliveries

    def line_up(self, consumer: str) -> bool:
        """See Store.line_up(): there are no lines here."""
        return False

    def settle(self, consumer: str, settlements: Sequence[Settlement], *, also: Also = NOTHING) -> list[str]:
        """See Store.settle()."""
        return self._settling.settle(consumer, settlements, also=also)[0]

    def extend(self, consumer: str, receipts: Sequence[StreamEntry]) -> list[StreamEntry]:
        """See Store.extend()."""
        return self.reassign(consumer, consumer, receipts)

    def append(self, consumer: str, runs: Sequence[tuple[Delivery, RunStream]]) -> None:
        """See Store.append()."""
        self._settling.append(consumer, runs)

    def reassign(self, consumer: str, new_owner: str, receipts: Sequence[StreamEntry]) -> list[StreamEntry]:
        """See Store.reassign()."""
        return self._settling.reassign(consumer, new_owner, receipts)


def listed(name: str, values: Sequence[Argument]) -> list[Argument]:
    """Return the arguments for a list of the script."""
    return [name, len(values), *values]


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


def claimed(batch: Sequence[Settlement]) -> list[int]:
    """Return the numbers, from 1, of the deliveries whose messages claim a unique key."""
    try:
        return [n for n, s in enumerate(batch, 1) if s.delivery.message.claims]  # type: ignore[union-attr]
    except AttributeError:  # one could not be decoded; checking each would slow down all other batches
        return [n for n, s in enumerate(batch, 1) if isinstance(s.delivery, Delivery) and s.delivery.message.claims]


def _noted(batch: Sequence[Settlement], *_others: object) -> list[Argument]:
    """Return how steps have ended: the events, the added steps, the values."""
    ends = [settlement.outcome for settlement in batch if isinstance(settlement.outcome, StepEnd)]
    return [
        *listed("events", [end.event for end in ends]),
        *listed("added", [end.added for end in ends]),
        *listed("values", [end.value for end in ends]),
    ]


def _handed_back(batch: Sequence[Settlement], *_others: object) -> list[Argument]:
    """Return the times of messages, "" where it is not known, and their marks."""
    times: list[Argument] = []
    for settlement in batch:
        assert isinstance(settlement.delivery, Delivery)
        published = settlement.delivery.message.published_ms
        times.append("" if published is None else published)
    return [*listed("times", times), *listed("marks", marks_of(batch))]


def marks_of(batch: Sequence[Settlement]) -> list[str]:
    """Return the marks of hand-backs for scripts: "lost", "suspect" or ""."""
    outcomes = [settlement.outcome for settlement in batch if isinstance(settlement.outcome, HandBack)]
    return ["lost" if each.lost else "suspect" if each.suspect else "" for each in outcomes]


def _retried(batch: Sequence[Settlement], consumer: str, receipts: Receipts) -> list[Argument]:
    """Return the milliseconds until the next attempts, the bodies, and the channel."""
    bodies: list[Argument] = []
    for settlement in batch:
        delivery = settlement.delivery
        assert isinstance(delivery, Delivery)
        again = delivery.message._replace(attempt=delivery.message.attempt + (not settlement.uncharged))
        # By its id, even if it was published under a unique key: another message may use that by now.
        alone, history = CHARGED if settlement.alone else "", history_of(consumer, settlement)
        bodies.append(encode_body(again, delivery.data_text, member=again.id, alone=alone, history=history))
    delays = [settlement.delay_ms for settlement in batch]
    return [*listed("delays", delays), *listed("bodies", bodies), "wake", 1, receipts.queue.wake]


def _set_aside(batch: Sequence[Settlement], *_others: object) -> list[Argument]:
    """Return the scores of names or of holds, and the bodies."""
    scores, bodies = list[Argument](), list[Argument]()
    for delivery, outcome, *_ in batch:
        assert isinstance(delivery, Delivery)
        message, alone, history = delivery.message, alone_of(delivery), delivery.history
        if isinstance(outcome, Park):
            charged = attempts_since(history, outcome.since_ms) if outcome.since_ms else 0
            message = message._replace(attempt=max(1, message.attempt - charged))
            # In `parked` the member is a place, so the body has the id.
            member, score = "", hold_score(outcome.subject)
        else:
            member, score = message.id, name_score(message.name)
        scores.append(score)
        bodies.append(encode_body(message, delivery.data_text, member=member, alone=alone, history=history))
    return [*listed("scores", scores), *listed("bodies", bodies)]


def buried(batch: Sequence[Settlement], consumer: str, receipts: Receipts) -> list[Argument]:
    """Return the numbers of the dead letters' fields and values, and these."""
    sizes, fields = list[int](), list[Argument]()
    for settlement in batch:
        delivery, outcome, *_ = settlement
        assert isinstance(outcome, Bury)
        own: list[Argument] = [*message_fields(delivery), *failure_fields(delivery, outcome)]
        own[1] = receipts.id_of(delivery)
        if history := history_of(consumer, settlement):
            own += ("deadstory", history)
        sizes.append(len(own))
        fields += own
    return [*listed("sizes", sizes), *listed("fields", fields)]


#: Outcomes after which the message is not delivered again, and those after which a row of an outbox is not needed.
FINAL = frozenset({Ack, StepEnd, StepDrop, Expire, Bury, Cancel})
ROW_ENDS = frozenset({Ack, Expire, Cancel})

_NO_RUNS: frozenset[StreamEntry] = frozenset()

#: The keys of dead letters.
DEAD = ("dead", "dead_ids", "dead_groups")

_LOG: Mapping[type, Transition] = {
    Ack: Transition("ack", needs_ids=False),
    Expire: Transition("expire", needs_ids=False),
    Retry: Transition("retry", ("due", "waiting"), _retried),
    HandBack: Transition("hand_back", ("ready",), _handed_back),
    Bury: Transition("bury", DEAD, buried),
    SetAside: Transition("set_aside", ("unhandled", "waiting"), _set_aside),
    Park: Transition("park", ("parked", "waiting", "unique", "control"), _set_aside),
}
_STREAM: Mapping[type, Transition] = {
    **_LOG,
    StepEnd: Transition("step", ("step_notes",), _noted),
    StepDrop: Transition("step", ("step_notes",), _noted),
    Cancel: Transition("cancel", ("cancels", "step_notes")),
    HandBack: Transition("hand_back", ("ready", "front"), _handed_back),
    Bury: Transition("bury", (*DEAD, "step_notes"), buried),
}
