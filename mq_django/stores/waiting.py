"""The waiting messages of a queue: their bodies in a hash, and a sorted set for each reason to wait."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from mq_django.conf import QueueConfig
from mq_django.core.breakers import MAX_HOLDS, Counted, Hold, Results, read_holds
from mq_django.core.jsontext import score_ms
from mq_django.core.keys import STEP_PREFIX, UNIQUE_PREFIX
from mq_django.core.message_format import decode_body, encode_body, message_of
from mq_django.core.messages import CancelResult, Lookup, LookupState, Message
from mq_django.core.publication import Publication, PublishOptions
from mq_django.errors import AlreadyPublished, DecodeError, QueueFull
from mq_django.signals import message_cancelled
from mq_django.stores.base import Promoted
from mq_django.stores.counters import Slots
from mq_django.stores.outbox_marks import note_ended, wants_ended
from mq_django.stores.results import ready_command
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport, reply_or_raise

#: For how long a step of a workflow that was published is not published again, in ms; after that a second message of a
#: step that is done is not run. Nothing else guards a callback. The prefix of their claims.
STEP_STARTED_MS, CALLBACK_STARTED_MS = 600 * 1000, 24 * 3600 * 1000
_STARTED = "step:"

_CANCEL_RESULTS = {
    b"CANCELLED": CancelResult.CANCELLED,
    b"RESCHEDULED": CancelResult.RESCHEDULED,
    b"REPLACED": CancelResult.REPLACED,
    b"MISSING": CancelResult.NOT_WAITING,
}
#: By their index in the script's KEYS.
_STATES = (LookupState.DELAYED, LookupState.UNHANDLED, LookupState.PRIORITY, LookupState.PARKED)


def member_of(message: Message) -> str:
    """Return the member of a delayed message: its unique key if another message may replace it, else its id."""
    if message.unique is None or message.claims:
        return message.id
    return UNIQUE_PREFIX + message.unique


def name_score(name: str) -> int:
    """Return the score of a name's unhandled messages: a hash of 52 bits, which a double holds exactly."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:13], 16)


def scores_of(names: Iterable[str] | None) -> list[tuple[int] | tuple[str, str]]:
    """Return the scores of the unhandled messages of each name, or the lowest and the highest score for None."""
    return [("-inf", "+inf")] if names is None else [(name_score(name),) for name in names]


def _due(options: PublishOptions) -> tuple[str, Argument]:
    return ("=", options.due_ms) if options.due_ms is not None else ("+", str(options.delay_ms or 0))


def not_waiting(expired: object) -> Lookup:
    """Return the result for a message that does not wait, by the reply to the search among the expired ones.

    If that key is of another type, no message that has expired is known.
    """
    known = isinstance(expired, bytes)
    return Lookup(LookupState.EXPIRED, expired_ms=score_ms(expired)) if known else Lookup(LookupState.NOT_WAITING)


class WaitingMessages:
    """Delayed, unhandled, parked and prioritised messages."""

    def __init__(self, config: QueueConfig, transport: Transport) -> None:
        self.config = config
        self.keys = config.keys
        self._transport = transport
        self._slots = Slots(config.keys)
        self._ageing: list[Argument] = [config.ageing_ms] if config.ageing_ms else []

    def add(self, publications: Sequence[Publication], *, also: Sequence[Command] = ()) -> list[str]:
        """Publish delayed messages. Returns the ids that wait now: of the earlier message if a conflict keeps it."""
        keys = self.keys
        shared = publications[0].options
        args: list[Argument] = [keys.wake, shared.on_conflict, "" if shared.postpone_ms is None else shared.postpone_ms]
        for message, data_text, options in publications:
            member = member_of(message)
            args += (message.id, member, *_due(options), message.name, encode_body(message, data_text, member=member))
        key_names = [keys.due, keys.waiting, keys.unique, keys.replaced, keys.ready, keys.front]
        wants_replaced = shared.keeps_result or self.config.keeps_rows or message_cancelled.receivers
        if wants_replaced:
            args.append("1")
        reply = self._write(self._command("waiting_add", key_names, args), also)
        if reply == b"EXISTS":
            raise AlreadyPublished(f"Queue {self.config.name!r} has a message with this unique key")
        if wants_replaced:
            note_ended(self._transport, self.config, reply.pop(), how="Replaced under its unique key")
        return [message_id.decode() for message_id in reply]

    def rank(self, publications: Sequence[Publication], *, also: Sequence[Command] = ()) -> list[str]:
        """Publish ready messages with priorities, and return their ids."""
        keys = self.keys
        args: list[Argument] = [keys.group]
        for message, data_text, _ in publications:
            args += (message.name, message.id, encode_body(message, data_text, member=message.id))
        args += self._ageing
        key_names = [keys.ready, keys.front, keys.priority, keys.waiting, keys.control]
        self._write(self._command("waiting_prioritize", key_names, args), also)
        return [message.id for message, _, _ in publications]

    def claim(self, publication: Publication, *, also: Sequence[Command] = ()) -> str:
        """Publish a message that claims its unique key for PublishOptions.claim_ms.

        Returns the id of the message that has the key: of the earlier one if it still claims it.
        """
        message, _, options = publication
        command = self._claim_command(publication, str(message.unique), options.claim_ms or 0)
        word, holder = self._write(command, also)
        if word == b"TAKEN" and options.on_conflict == "error":
            raise AlreadyPublished(
                f"Message {holder.decode()!r} of queue {self.config.name!r} has the unique key {message.unique!r}"
            )
        return str(holder.decode())

    def start(self, publications: Sequence[Publication]) -> list[bool]:
        """Publish steps of workflows, and callbacks of runs, each once, however often it is started.

        Returns for each whether it is published; False if the queue is full.
        """
        commands: list[Command] = []
        for each in publications:
            message_id = each.message.id
            lasts = STEP_STARTED_MS if message_id.startswith(STEP_PREFIX) else CALLBACK_STARTED_MS
            if each.options.keeps_result:
                # A result that exists is that of the message that was published before.
                commands.append((*ready_command(self.config, each), "NX"))
            commands.append(self._claim_command(each, f"{_STARTED}{message_id}", lasts))
        replies = self._transport.ask_all(commands)
        per_message = 2 if publications[0].options.keeps_result else 1
        return [reply != b"FULL" for reply in replies[per_message - 1 :: per_message]]

    def _claim_command(self, publication: Publication, key: str, lasts_ms: int) -> Command:
        """Return the command that publishes a message which claims a key for some ms; 0: until it is handled."""
        (message, data_text, options), keys = publication, self.keys
        mode, ms = ("!", 0) if options.delay_ms is None and options.due_ms is None else _due(options)
        body = encode_body(message, data_text, member=message.id)
        key_names = [keys.claims, keys.ready, keys.front, keys.priority, keys.due, keys.waiting, keys.control]
        args: list[Argument] = [keys.group, keys.wake, key, lasts_ms, mode, ms, message.id, message.name, body]
        return self._command("waiting_claim", key_names, [*args, *self._ageing])

    def _command(self, script: str, key_names: Sequence[str], args: Sequence[Argument]) -> Command:
        where, limit = self._slots.now(), self.config.max_depth or 0
        return scripts.command(script, keys=[*key_names, *where.keys], args=[limit, where.minute, where.hour, *args])

    def _write(self, command: Command, also: Sequence[Command]) -> Any:
        reply = reply_or_raise(self._transport.pipeline([*also, command])[-1])
        if reply == b"FULL":
            raise QueueFull(f"Queue {self.config.name!r} is at its MAX_DEPTH of {self.config.max_depth}")
        return reply

    def promote(self, *, limit: int) -> Promoted:
        """See Store.promote()."""
        moved, next_us, paused, unhandled, has_holds = self._transport.ask(self._promote_command(limit))
        waits = [] if next_us < 0 else [next_us]
        if has_holds:
            released, next_us = self._release_held(limit)
            moved += released
            waits += [] if next_us < 0 else [next_us]
        return Promoted(moved, min(waits, default=None), bool(paused), unhandled)

    def due_command(self) -> Command:
        """See Store.due_command()."""
        return self._promote_command(0)

    def read_due(self, reply: Any) -> Promoted | None:
        """See Store.read_due()."""
        _, next_us, paused, unhandled, has_holds = reply_or_raise(reply)
        if next_us == 0 or has_holds:
            return None
        return Promoted(0, None if next_us < 0 else next_us, bool(paused), unhandled)

    def _promote_command(self, limit: int) -> Command:
        keys = self.keys
        key_names = [keys.due, keys.waiting, keys.unique, keys.ready, keys.priority, keys.unhandled, keys.control]
        key_names += [keys.parked, keys.permits, keys.front, keys.holds]
        free = int(not self.config.limits.of_keys)
        return scripts.command("waiting_promote", keys=key_names, args=[limit, keys.group, free, *self._ageing])

    def _release_held(self, limit: int) -> tuple[int, int]:
        keys = self.keys
        key_names = [keys.holds, keys.parked, keys.waiting, keys.unique, keys.ready, keys.front, keys.priority]
        key_names += [keys.control, keys.consumers, keys.permits]
        moved, next_us = self._transport.run("holds_release", key_names, [limit, keys.group, keys.wake])
        return moved, next_us

    def current_holds(self) -> Mapping[str, Hold]:
        """See Store.current_holds()."""
        return read_holds(self._transport.ask(("HGETALL", self.keys.holds)))

    def hold(self, hold: Hold) -> bool:
        """See Store.hold()."""
        return bool(self._change_hold(hold.subject, hold.encoded()) != b"FULL")

    def end_hold(self, subject: str) -> bool:
        """See Store.end_hold()."""
        return bool(self._change_hold(subject, b"") == b"CHANGED")

    def count_results(self, rows: Sequence[Results]) -> list[Counted]:
        """See Store.count_results()."""
        keys = self.keys
        key_names = [keys.holds, keys.consumers, keys.parked, *(keys.breaker(row.subject) for row in rows)]
        args = [keys.wake, *chain.from_iterable(row.arguments() for row in rows)]
        found = self._transport.run("breakers_count", key_names, args)
        return [Counted(before.decode(), after.decode(), first, failed) for before, after, first, failed in found]

    def _change_hold(self, subject: str, text: bytes) -> Any:
        keys = self.keys
        return self._transport.run("holds_change", [keys.holds, keys.consumers], [subject, text, MAX_HOLDS, keys.wake])

    def cancel(self, id_or_unique: str | bytes) -> CancelResult:
        """See Store.cancel()."""
        keys = self.keys
        key_names = [keys.due, keys.unhandled, keys.priority, keys.parked]
        index = [keys.waiting, keys.unique, keys.claims, keys.replaced, keys.step_notes, keys.permits, keys.next_checks]
        more = ["1"] if wants_ended(self.config) else []
        reply = self._transport.run("waiting_cancel", [*key_names, *index], [id_or_unique, *more])
        if not isinstance(reply, list):
            return _CANCEL_RESULTS[reply]
        note_ended(self._transport, self.config, reply, is_asked=True)
        return CancelResult.CANCELLED

    def reschedule(self, id_or_unique: str, *, delay_ms: int | None = None, due_ms: int | None = None) -> CancelResult:
        """See Store.reschedule()."""
        keys = self.keys
        mode, ms = ("=", due_ms) if due_ms is not None else ("+", delay_ms or 0)
        key_names = [keys.due, keys.unique, keys.claims, keys.replaced]
        return _CANCEL_RESULTS[
            self._transport.run("waiting_reschedule", key_names, [id_or_unique, mode, ms, keys.wake])
        ]

    def find(self, id_or_unique: str) -> Lookup:
        """See Store.find()."""
        keys = self.keys
        key_names = [keys.due, keys.unhandled, keys.priority, keys.parked]
        index = [keys.waiting, keys.unique, keys.claims, keys.replaced]
        command = scripts.command("waiting_find", keys=[*key_names, *index], args=[id_or_unique])
        answer, expired = self._transport.pipeline([command, ("ZSCORE", keys.expired, id_or_unique)])
        reply = reply_or_raise(answer)
        if not isinstance(reply, list):
            return Lookup(LookupState.REPLACED) if reply == b"REPLACED" else not_waiting(expired)
        number, score, body, member = reply
        state = _STATES[number - 1]
        try:
            message = message_of(decode_body(body), queue=self.config.public_name, entry=member)
        except (DecodeError, UnicodeDecodeError):
            message = None
        return Lookup(state, message, score_ms(score) if state is LookupState.DELAYED else None)

    def release_unhandled(self, names: Iterable[str] | None, *, limit: int) -> int:
        """See Store.release_unhandled()."""
        keys = self.keys
        key_names = [keys.unhandled, keys.waiting, keys.ready, keys.priority, keys.control, keys.permits, keys.front]
        commands = [
            scripts.command("waiting_release", keys=key_names, args=[first, limit, keys.group, *last])
            for first, *last in scores_of(names)
        ]
        return sum(self._transport.ask_all(commands))
