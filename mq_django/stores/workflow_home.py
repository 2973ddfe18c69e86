"""The runs of workflows in Redis: their steps, what these wait for, and what is to be published next."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from mq_django.core.flow_graph import RunProblem, StepRecord
from mq_django.core.ids import StepId, is_run_id, read_step_id
from mq_django.core.jsontext import whole
from mq_django.core.keys import QueueKeys, WorkflowKeys
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport, reply_or_raise

_RECORD = re.compile(rb"([A-Z]) (\d{1,9}) \d{1,9} (\d{1,17}) (\d{1,9}) ([a-z]) (\d{1,17})")

#: Steps that a script call changes. This blocks Redis for about 3 ms.
CHANGES = 300
#: Steps that a round trip writes, and events that a script call applies.
BATCH = 100
#: Values that a command reads.
VALUES = 1000
#: For how long a run is kept whose definition is not complete, in ms.
BUILDING_MS = 3600 * 1000
#: For how long a run is kept after its end, in ms.
KEPT_MS = 7 * 24 * 3600 * 1000


class Event(NamedTuple):
    """What has happened to a step, or to a run."""

    #: begin, done, failed, dropped, redriven, retried, passed, lost; cancel, expire, continue.
    name: str
    step: int | str = 0
    #: The number of the note about it.
    seq: int = 0
    #: The value of a step that is done, or why it has failed.
    detail: bytes | str = b""
    #: The steps that were added meanwhile, such as "8-1007".
    added: str = ""
    #: The round in which the step was started whose message the note is about, or which an operator has seen.
    round: int = 0


class Start(NamedTuple):
    """A step or a callback that is to be published."""

    entry: bytes
    step: str
    round: int
    body: bytes


class Advanced(NamedTuple):
    """The result of a change of a run."""

    #: building, running, succeeded, failed, cancelled or expired; "" if there is no such run.
    state: str
    #: Whether another call must continue.
    is_left: bool = False
    starts: Sequence[Start] = ()
    #: The run that has the unique key.
    holder: str = ""
    #: Numbers of the steps that operators have changed, 0 for the run.
    changed: Sequence[int] = ()


class LeftWork(NamedTuple):
    """What nobody has done for the runs of a home."""

    #: By run.
    starts: Mapping[str, Sequence[Start]]
    #: The last one; empty if there are none.
    last_start: bytes
    #: Runs with changes that are still to be made, and runs that have not ended in time.
    changes: Sequence[str]
    expired: Sequence[str]


class StepState(NamedTuple):
    """What is known about a step of a run: see `lua/workflows_advance.lua`."""

    number: int
    state: str
    #: How many steps it waits for.
    waits: int
    #: The round of the run in which it was started last; 0: never.
    round: int
    #: When it was started last and when it has ended, in ms since 1970; 0: not yet.
    began_ms: int
    ended_ms: int
    #: The number of the latest note about its message.
    seq: int
    #: Whether it has no message, and is done when the steps that it waits for are done.
    is_join: bool


def step_state(number: int, record: bytes) -> StepState | None:
    """Return the state of a step from its record; None if another program wrote that."""
    found = _RECORD.fullmatch(record)
    if found is None:
        return None
    state, kind = found[1], found[5]
    waits, seq, of_round, began_ms = (whole(found[at]) or 0 for at in (2, 3, 4, 6))
    ended_ms = seq // 1000 if state in (b"D", b"F", b"P") else 0
    return StepState(number, state.decode(), waits, of_round, began_ms, ended_ms, seq, is_join=kind == b"j")


class StepView(NamedTuple):
    """What a consumer knows before it runs a step."""

    #: The state of the run; "" if there is no such run.
    run_state: str
    #: See `lua/workflows_advance.lua`; "" if there is no such step.
    record: str
    #: The bytes of all values of the run.
    value_bytes: int
    #: The JSON texts of the values that were asked for; None for one that is missing.
    values: Mapping[int, bytes | None]


class WorkflowHome:
    """The runs of one home."""

    def __init__(self, keys: WorkflowKeys, transport: Transport) -> None:
        self.keys = keys
        self._transport = transport

    def create(self, run_id: str, fields: Mapping[str, Argument], steps: Iterable[StepRecord]) -> None:
        """Write the definition of a run that has not begun."""
        pairs: list[Argument] = [each for pair in fields.items() for each in pair]
        head = ("HSET", self.keys.run(run_id), "state", "building", *pairs)
        # Each time again: a key that does not exist yet cannot expire.
        self._transport.ask_all([head, *self._expiring(run_id)])
        self.write_steps(run_id, steps, also=self._expiring(run_id))

    def write_steps(self, run_id: str, steps: Iterable[StepRecord], *, also: Sequence[Command] = ()) -> None:
        """Write steps that do not belong to the run before an event adds them."""
        keys = self.keys
        waiting = iter(steps)
        while batch := list(islice(waiting, BATCH)):
            records: list[Argument] = []
            bodies: list[Argument] = []
            after: list[Argument] = []
            for step in batch:
                records += (step.number, f"B {step.waits} 0 0 0 {'t' if step.body else 'j'} 0")
                bodies += (step.number, step.body) if step.body else ()
                after += (step.number, step.after) if step.after else ()
            hashes = ((keys.steps, records), (keys.bodies, bodies), (keys.after, after))
            commands: list[Command] = [("HSET", key(run_id), *pairs) for key, pairs in hashes if pairs]
            self._transport.ask_all([*commands, *also])

    def allocate(self, run_id: str, count: int) -> int:
        """Return the first of `count` numbers for steps that are added to a run."""
        last: int = self._transport.ask(("HINCRBY", self.keys.run(run_id), "next", count))
        return last - count + 1

    def begin_step(self, run_id: str, step: int, values: Sequence[int]) -> "StepView":
        """Return what a step needs to know before it runs, with the values of other steps."""
        keys = self.keys
        commands: list[Command] = [("HMGET", keys.run(run_id), "state", "bytes"), ("HGET", keys.steps(run_id), step)]
        parts = (values[at : at + VALUES] for at in range(0, len(values), VALUES))
        commands.extend([("HMGET", keys.values(run_id), *part) for part in parts])
        (state, size), record, *found = self._transport.ask_all(commands)
        texts = dict(zip(values, [text for part in found for text in part], strict=True))
        return StepView((state or b"").decode(), (record or b"").decode(), whole(size) or 0, texts)

    def records(self, run_id: str, cursor: int = 0) -> tuple[int, list[StepState]]:
        """Return a cursor and the states of some steps of a run, joins left out."""
        following, flat = self._transport.ask(("HSCAN", self.keys.steps(run_id), cursor, "COUNT", VALUES))
        pairs = zip(flat[::2], flat[1::2], strict=True)
        states = [(whole(number, 10**9), record) for number, record in pairs]
        found = [step_state(number, record) for number, record in states if number is not None]
        return whole(following) or 0, [state for state in found if state is not None and not state.is_join]

    def each_record(self, run_id: str) -> Iterator[StepState]:
        """Yield the states of all steps of a run, joins left out."""
        cursor = -1
        # A scan may return a step twice.
        seen: set[int] = set()
        while cursor:
            cursor, found = self.records(run_id, max(cursor, 0))
            yield from (step for step in found if step.number not in seen)
            seen.update(step.number for step in found)

    def state_of(self, run_id: str, step: int) -> StepState | None:
        """Return the state of a step, or None if the run has none with this number."""
        return step_state(step, self._transport.ask(("HGET", self.keys.steps(run_id), step)) or b"")

    def bodies(self, run_id: str, steps: Sequence[int]) -> list[bytes]:
        """Return what is published of each step; empty if it has nothing."""
        return [body or b"" for body in self._transport.ask(("HMGET", self.keys.bodies(run_id), *steps))]

    def left(self, *, age_ms: int, after: bytes = b"") -> LeftWork | None:
        """Return what nobody has done for `age_ms`; None if there are no runs.

        Args:
            age_ms: what is later may still be done by others.
            after: the last start of the call before; empty to begin with the oldest.
        """
        keys = self.keys
        key_names = [keys.starts, keys.alive, keys.busy, keys.index]
        reply = self._transport.run("workflows_left", key_names, [age_ms, after, CHANGES])
        if not reply:
            return None
        starts, changes, expired = reply
        names = [[run_id.decode(errors="replace") for run_id in group] for group in (changes, expired)]
        return LeftWork(self._starts(starts), starts[-1][0] if starts else b"", *names)

    def claim_check(self, seconds: float) -> bool:
        """Claim the check of running runs, if there are any: return True for one caller within `seconds`."""
        if not self._transport.ask(("EXISTS", self.keys.alive)):
            return False
        return self._transport.ask(("SET", self.keys.checked, 1, "NX", "PX", round(seconds * 1000))) is not None

    def note_stuck(self, problems: Sequence[RunProblem], seconds: float) -> None:
        """Note for some seconds which runs do not go on; without any, that all do."""
        command: Command = ("DEL", self.keys.stuck)
        if problems:
            count, first = len({problem.run for problem in problems}), problems[0]
            command = ("SET", self.keys.stuck, f"{count} {first.kind} {first.run}", "PX", round(seconds * 1000))
        self._transport.ask(command)

    def start_of(self, entry: str) -> dict[str, list[Start]]:
        """Return a start by its entry, by run; empty if it is published."""
        return self._starts(self._transport.ask(("XRANGE", self.keys.starts, entry, entry)))

    def _starts(self, entries: Iterable[tuple[bytes, Sequence[bytes]]]) -> dict[str, list[Start]]:
        found: dict[str, list[Start]] = {}
        for entry, flat in entries:
            fields = dict(zip(flat[::2], flat[1::2], strict=True))
            run_id = fields.get(b"run", b"").decode(errors="replace")
            step, of_round = fields.get(b"step", b"").decode(errors="replace"), whole(fields.get(b"round"), 10**9)
            if is_run_id(run_id) and of_round is not None:
                found.setdefault(run_id, []).append(Start(entry, step, of_round, b""))
        return {run_id: self._with_bodies(run_id, starts) for run_id, starts in found.items()}

    def _with_bodies(self, run_id: str, starts: Sequence[Start]) -> list[Start]:
        steps, run = self.keys.bodies(run_id), self.keys.run(run_id)
        commands: list[Command] = [
            ("HGET", steps, start.step) if start.step.isdigit() else ("HGET", run, f"on_{start.step}")
            for start in starts
        ]
        bodies = self._transport.ask_all(commands)
        return [start._replace(body=body or b"") for start, body in zip(starts, bodies, strict=True)]

    def read(self, run_id: str) -> dict[str, bytes]:
        """Return the fields of a run; none if there is no such run."""
        pairs = self._transport.ask(("HGETALL", self.keys.run(run_id)))
        return {name.decode(errors="replace"): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)}

    def _expiring(self, run_id: str) -> list[Command]:
        return [("PEXPIRE", key, BUILDING_MS) for key in self.keys.of_run(run_id)]

    def advance(self, run_id: str, events: Sequence[Event] = ()) -> Advanced:
        """Apply up to BATCH events to a run, and make up to CHANGES changes."""
        return self.advanced(self._transport.pipeline([self.command(run_id, events)])[0])

    def command(self, run_id: str, events: Sequence[Event] = ()) -> Command:
        """Return the command of advance()."""
        args: list[Argument] = [run_id, CHANGES, KEPT_MS]
        for event in events:
            args += event
        return scripts.command("workflows_advance", keys=self.keys.all(run_id), args=args)

    def forget_runs(self, run_ids: Sequence[str]) -> None:
        """Remove runs that do not exist from the lists of runs."""
        keys = self.keys
        self._transport.ask_all([("ZREM", key, *run_ids) for key in (keys.alive, keys.index, keys.busy)])

    def forget_gone(self, before_ms: int, skipped: int) -> int | None:
        """Remove runs that do not exist any more from the list of those that were started before a time, in ms.

        Looks at BATCH runs after the first `skipped`, and returns how many to skip the next time; None at the end.
        """
        command = ("ZRANGEBYSCORE", self.keys.index, "-inf", before_ms, "LIMIT", skipped, BATCH)
        run_ids = [run_id.decode(errors="replace") for run_id in self._transport.ask(command)]
        if not run_ids:
            return None
        exist = self._transport.ask_all([("EXISTS", self.keys.run(run_id)) for run_id in run_ids])
        gone = [run_id for run_id, is_there in zip(run_ids, exist, strict=True) if not is_there]
        if gone:
            self.forget_runs(gone)
        return skipped + len(run_ids) - len(gone) if len(run_ids) == BATCH else None

    def forget_starts(self, entries: Sequence[bytes]) -> None:
        """Delete starts that are published."""
        self._transport.ask(("XDEL", self.keys.starts, *entries))

    @staticmethod
    def advanced(reply: object) -> Advanced:
        """Return the result in a reply of advance()."""
        word, *rest = reply_or_raise(reply)
        if word == b"TAKEN":
            return Advanced("", holder=rest[0].decode())
        if word == b"MISSING":
            return Advanced("")
        state, left, changed, *starts = rest
        fours = zip(*[iter(starts)] * 4, strict=True)
        found = [Start(entry, step.decode(), of_round, body) for entry, step, of_round, body in fours]
        return Advanced(state.decode(), bool(left), found, changed=[whole(number) or 0 for number in changed])


# The notes of a queue about steps of workflows that have ended: see `lua/parts/step_notes.lua`.

_NOTE = re.compile(rb"(\d{1,17}) ([a-z]{1,16}) (-|[0-9,-]{1,1000}) (.*)", re.DOTALL)
#: Notes that a call reads.
NOTES_AT_ONCE = 500


class Note(NamedTuple):
    """How a step has ended."""

    message_id: str | bytes
    #: Its first word, which is a number.
    number: bytes
    #: None if another program wrote the note.
    step: StepId | None
    event: Event


class StepNotes:
    """The notes of one queue."""

    def __init__(self, keys: QueueKeys, transport: Transport) -> None:
        self._key = keys.step_notes
        self._transport = transport

    def read(self, message_ids: Sequence[str]) -> list[Note]:
        """Return the notes about these messages."""
        pairs = zip(message_ids, self._transport.ask(("HMGET", self._key, *message_ids)), strict=True)
        return [_note(message_id, value) for message_id, value in pairs if value is not None]

    def left(self, *, age_ms: int, cursor: str = "0") -> tuple[str, list[Note]]:
        """Return a cursor, "0" at the end, and some of the notes that are older than `age_ms`."""
        following, *flat = self._transport.run("steps_left", [self._key], [age_ms, cursor, NOTES_AT_ONCE])
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return following.decode(), [_note(field, value) for field, value in pairs]

    def forget(self, notes: Sequence[Note]) -> None:
        """Delete notes, unless later ones have replaced them."""
        args: list[Argument] = [each for note in notes for each in (note.message_id, note.number)]
        self._transport.run("steps_forget", [self._key], args)


def noted(transport: Transport, queues: Sequence[QueueKeys]) -> list[bool]:
    """Return for each queue of a server whether there may be notes."""
    counts = transport.together([("HLEN", keys.step_notes) for keys in queues])
    # One field is the latest number. An error is shown by who reads the notes.
    return [not isinstance(count, int) or count > 1 for count in counts]


def _note(message_id: str | bytes, value: bytes) -> Note:
    text = message_id.decode(errors="replace") if isinstance(message_id, bytes) else message_id
    step, found, first = read_step_id(text), _NOTE.fullmatch(value), value.partition(b" ")[0]
    if step is None or found is None:
        return Note(message_id, first, None, Event(""))
    name, added, detail = found[2].decode(), found[3].decode(), found[4]
    event = Event(name, step.step, whole(first) or 0, detail, "" if added == "-" else added, step.round)
    return Note(message_id, first, step, event)
