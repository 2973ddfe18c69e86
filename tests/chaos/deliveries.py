"""What a history says about each message and each delivery: the facts that the checker judges."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.chaos.executions import NEVER, Executions
from tests.chaos.history import Event

#: Seconds in which what happened is noted: who was handed a message next may have said so before who gave it back.
NOTED = 1.0
#: What is judged elsewhere.
BESIDE = ("partner", "called", "opened", "reading", "reads", "read", "read-all", "read-failed")


@dataclass(slots=True)
class Hold:
    """A process has a message: from taking it, or from starting it, until it knows it settled."""

    pid: int
    since: float
    until: float = NEVER
    #: The thread that started it; 0 for what is only taken.
    thread: int = 0

    def overlaps(self, begin: float, end: float) -> bool:
        """Tell whether it was so at some moment between two."""
        return self.since <= end and self.until >= begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that was done to the processes of a run."""

    name: str
    kind: str
    began: float
    #: When it had hit for certain.
    struck: float
    healed: float
    pids: frozenset[int]
    #: Must cost no duplicate at all.
    spares: bool
    #: Since when Redis's answers are lost with it: see `tests.chaos.lost_tails`.
    loses_from: float | None = None


@dataclass(slots=True)
class Life:
    """One message, as the history tells it."""

    invoked: float | None = None
    delay: float = 0.0
    #: "ok", "failed", "unknown", or "" when the producer did not live to tell.
    published: str = ""
    #: When its publish had returned.
    accepted: float | None = None
    counted: bool = True
    effects: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    attempts: int = 0
    #: When they were noted.
    acks: list[float] = field(default_factory=list)
    buried: list[float] = field(default_factory=list)
    #: (attempt ended, seconds to wait) of each retry.
    retries: list[tuple[float, float]] = field(default_factory=list)
    #: Handed out and not settled; started and not settled.
    taken: list[Hold] = field(default_factory=list)
    open: list[Hold] = field(default_factory=list)
    #: Moments at which it visibly went on: started, or settled by whoever held it.
    moved: list[float] = field(default_factory=list)
    last_end: float = 0.0
    #: Somebody deleted it from Redis: it is handled if it was in hand, and cannot be handed to anybody else.
    removed: bool = False
    #: The key, and its place among the messages of that.
    key: str = ""
    number: int = 0
    #: (process, when it was sent) of each outcome that counted.
    sent: list[tuple[int, float]] = field(default_factory=list)

    def is_held(self, fault: Fault) -> bool:
        """Tell whether it was in the hands of the processes that a fault hit, when it had hit."""
        return any(hold.pid in fault.pids and hold.overlaps(fault.struck, fault.struck) for hold in self.taken)


#: Seconds that a thread takes to go on after its process was stopped, on a machine that others use, too.
RESUMES = 1.0


class Told:
    """A whole history, read once."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.lives: dict[str, Life] = defaultdict(Life)
        self.clock_steps: list[float] = []
        self.stale = 0
        #: When publishes returned, and when messages were started.
        self.accepted: list[float] = []
        self.begun_at: list[float] = []
        #: Who took or started something is a consumer; who only settles is a supervisor.
        self._consumers: set[int] = set()
        self._settlings: list[tuple[float, int, set[str]]] = []
        #: Process -> what it has ever taken or started.
        self._had: dict[int, set[str]] = defaultdict(set)
        #: (process, thread) -> when it started messages.
        self._starts: dict[tuple[int, int], list[float]] = defaultdict(list)
        self._begun: list[Event] = []
        self._healed: dict[str, float] = {}
        self._last_of: dict[int, float] = {}
        self.executions = Executions()
        for event in events:
            self._last_of[event.pid] = event.at
            self._read(event)
        self.executions.finish(self._last_of)
        self.faults = [self._fault(event) for event in self._begun]

    def _read(self, event: Event) -> None:
        readers = {
            "invoke": self._invoke,
            **dict.fromkeys(("ok", "failed", "unknown"), self._published),
            "taken": self._taken,
            "started": self._started,
            "effect": self._effect,
            "ended": self._ended,
            "entered": self.executions.entered,
            "left": self.executions.left,
            "settled": self._settled,
            "fault": self._begun.append,
            "healed": self._heal,
            "clock": self._clock,
            "removed": self._removed,
            **dict.fromkeys(BESIDE, lambda _: None),
        }
        if event.what not in readers:
            raise ValueError(f"no such event: {event.what!r}")
        readers[event.what](event)

    def _invoke(self, event: Event) -> None:
        for number, message in enumerate(event.ids, int(event.told.get("first", 0))):
            life = self.lives[message]
            life.key, life.number = str(event.told.get("key", "")), number
            life.invoked, life.delay = event.at, float(event.told.get("delay", 0.0))
            life.counted = not event.told.get("uncounted")

    def _published(self, event: Event) -> None:
        for message in event.ids:
            life = self.lives[message]
            life.published, life.accepted = event.what, event.at
        if event.what == "ok":
            self.accepted.append(event.at)

    def _taken(self, event: Event) -> None:
        self._consumers.add(event.pid)
        self._had[event.pid].update(event.ids)
        for message in event.ids:
            self.lives[message].taken.append(Hold(event.pid, event.at))

    def _started(self, event: Event) -> None:
        self._consumers.add(event.pid)
        self._had[event.pid].add(event.id)
        life = self.lives[event.id]
        life.starts.append(event.at)
        self.begun_at.append(event.at)
        life.moved.append(event.at)
        life.attempts = max(life.attempts, int(event.told["attempt"]))
        thread = int(event.told.get("thread", 0))
        life.open.append(Hold(event.pid, event.at, thread=thread))
        self._starts[event.pid, thread].append(event.at)

    def _effect(self, event: Event) -> None:
        self.lives[event.id].effects.append(event.at)

    def _ended(self, event: Event) -> None:
        self.lives[event.id].last_end = event.at

    def _heal(self, event: Event) -> None:
        self._healed[str(event.told["fault"])] = event.at

    def _removed(self, event: Event) -> None:
        for message in event.ids:
            self.lives[message].removed = True

    def _clock(self, event: Event) -> None:
        self.clock_steps.append(event.at)

    def _settled(self, event: Event) -> None:
        told = event.told
        ids = {*told.get("acked", ()), *told.get("buried", ()), *told.get("back", ())}
        ids.update(found for found, _ in told.get("retried", ()))
        self._settlings.append((event.at, event.pid, ids))
        if "began" in told:
            began = float(told["began"])
            self.executions.settled(event.pid, (*ids, *told.get("stale", ())), began)
            for message in ids:
                self.lives[message].sent.append((event.pid, began))
        for message in event.told.get("acked", ()):
            self.lives[message].acks.append(event.at)
            self._close(message, event)
        for message in event.told.get("buried", ()):
            self.lives[message].buried.append(event.at)
            self._close(message, event)
        for message in event.told.get("back", ()):
            self._close(message, event)
        for message, delay_ms in event.told.get("retried", ()):
            life = self.lives[message]
            # Counted from before the settling: a handler's end may be noted after its outcome was sent.
            life.retries.append((float(told.get("began", life.last_end)), delay_ms / 1000))
            self._close(message, event)
        for message in event.told.get("stale", ()):
            self.stale += 1
            self._close(message, event, went_on=False)

    def _close(self, message: str, event: Event, *, went_on: bool = True) -> None:
        life = self.lives[message]
        if went_on:
            life.moved.append(event.at)
        for hold in (*life.taken, *life.open):
            if hold.pid == event.pid and hold.until == NEVER:
                hold.until = event.at
        for hold in life.taken if went_on else ():
            # Whoever else had it has it no more, though it may still run it: what a stopped process had not begun, say.
            if hold.until == NEVER and event.at - hold.since > NOTED:
                hold.until = event.at

    def had_by(self, fault: Fault) -> Iterator[tuple[str, Life]]:
        """Yield what the processes that a fault hit have ever taken or started."""
        for message in {message for pid in fault.pids for message in self._had.get(pid, ())}:
            yield message, self.lives[message]

    def is_next(self, hold: Hold, since: float) -> bool:
        """Tell whether it is the first that its thread started after a time."""
        starts = self._starts[hold.pid, hold.thread]
        return hold.since > since and starts[bisect_right(starts, since)] == hold.since

    def handover(self, fault: Fault) -> float | None:
        """Return the seconds from a consumer's death until its supervisor has settled for it.

        None when that is not known: it held nothing, or another fault came in between.
        """
        ids = {message for message, life in self.had_by(fault) if life.is_held(fault)}
        for at, pid, settled in self._settlings:
            if at > fault.began and pid not in self._consumers and settled & ids:
                between = [other for other in self.faults if fault.began < other.began < at and not other.spares]
                return None if between else at - fault.began
        return None

    def _fault(self, event: Event) -> Fault:
        name, kind, pids = str(event.told["fault"]), str(event.told["kind"]), frozenset(event.told["pids"])
        struck = float(event.told.get("struck", event.at))
        if kind in ("die", "hold") or kind.startswith("at-"):
            # It notes its end before, or a handler that only a new process can end. Its other threads go on until it is
            # gone, which is late on a busy machine.
            struck = max(struck, *(self._last_of.get(pid, struck) for pid in pids))
        return Fault(
            name=name,
            kind=kind,
            began=float(event.told["began"]),
            struck=struck,
            healed=max(struck, self._healed.get(name, event.at)),
            pids=pids,
            spares=bool(event.told.get("spares")),
            loses_from=event.told.get("loses_from"),
        )


def exposed(told: Told, fault: Fault) -> set[str]:
    """Return what the processes that a fault hit were running, or had run and not yet settled.

    A thread that is stopped between its last look at the clock and its handler is running one, too, and notes that when
    it may go on.
    """
    until = fault.healed + RESUMES if fault.kind == "stop-tree" else fault.struck

    def is_hit(hold: Hold) -> bool:
        ran = hold.overlaps(fault.began, fault.struck)
        return hold.pid in fault.pids and (ran or (hold.since <= until and told.is_next(hold, fault.struck)))

    return {message for message, life in told.had_by(fault) if any(map(is_hit, life.open))}


def held(told: Told, fault: Fault) -> Sequence[Life]:
    """Return the messages that were in the hands of the processes that a fault hit, when it had hit."""
    return [life for _, life in told.had_by(fault) if life.is_held(fault)]
