"""The consumers of a queue, for display: processes, states and running deliveries."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mq_django.core.jsontext import LARGEST, LAST_MS, whole
from mq_django.stores.members import HOUSEKEEPING, MAX_RUNNING, Membership, supervisor_of

#: A supervisor without a heartbeat for this long is shown as gone: three intervals.
ALIVE_MS = 7500

#: The states of a consumer, which only move forward.
State = Literal["running", "quiet", "stopping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningView:
    """A delivery that a consumer runs, as of its supervisor's last heartbeat."""

    #: The number of the stream it came from, and its receipt.
    source: int
    entry: str
    #: For how long it has run, in ms.
    ms: int


#: The threads of a consumer, or the slots of its event loop for coroutines.
SlotKind = Literal["threads", "coroutines"]
SLOT_KINDS: tuple[SlotKind, ...] = ("threads", "coroutines")


@dataclass(frozen=True, slots=True, kw_only=True)
class FullSlots:
    """All slots of one kind of a consumer are busy."""

    kind: SlotKind
    #: The delivery that has run longest, and the queue that it is from.
    queue: str
    longest: RunningView
    #: For how long no slot has become free, in ms.
    ms: int


# Not frozen: that would take three times as long to make, and a page of all queues makes thousands.
@dataclass(slots=True, kw_only=True)
class ConsumerView:
    """A consumer of a queue.

    Its description is read when it is asked for: pages use little of each.
    """

    id: str
    supervisor: str
    #: Milliseconds since its supervisor's last heartbeat; None when there was none.
    seen_ms_ago: int | None
    #: The request to it or its supervisor: "quiet", "stop", or "".
    asked: str
    #: The descriptions of it and of its supervisor, as the supervisor announces them.
    described: Mapping[str, Any]
    announced: Mapping[str, Any]

    @property
    def host(self) -> str:
        """Return the name of its machine."""
        return _text(self._shared("host"))

    @property
    def version(self) -> str:
        """Return the version of its supervisor."""
        return _text(self._shared("version"))

    @property
    def release(self) -> str:
        """Return the version of the project's code; that of its supervisor if the project has none."""
        return _text(self._shared("release")) or self.version

    @property
    def pid(self) -> int | None:
        """Return the id of its process."""
        return _number(self._shared("pid"))

    @property
    def threads(self) -> int | None:
        """Return how many threads it has."""
        return _number(self._shared("threads"))

    @property
    def since_ms(self) -> int | None:
        """Return when it started, in ms since 1970; None if unknown."""
        return _number(self._shared("since_ms"))

    @property
    def state(self) -> State:
        """Return its state."""
        return _state(self.described.get("state"))

    @property
    def running(self) -> Sequence[RunningView]:
        """Return the deliveries of the queue that it runs, the longest first; a bounded number."""
        found = self.described.get("running")
        return tuple(_running(found, self.seen_ms_ago or 0)) if found else ()

    @property
    def lists_running(self) -> bool:
        """Return whether `running` has all deliveries of the queue that it runs. Other programs may list none."""
        found = self.described.get("running")
        return isinstance(found, list) and len(found) < MAX_RUNNING

    @property
    def runs(self) -> int | None:
        """Return how many deliveries of the queue it runs; None if it does not announce that."""
        found = self.described.get("running")
        return _number(self.described.get("runs")) or (len(found) if self.lists_running and found is not None else None)

    @property
    def handled(self) -> int:
        """Return how many deliveries of the queue it has handled since the process started."""
        return _number(self.described.get("handled")) or 0

    @property
    def failed(self) -> int:
        """Return how many deliveries of the queue have failed since the process started."""
        return _number(self.described.get("failed")) or 0

    @property
    def took_ms(self) -> int | None:
        """Return the handling time of all of these, in ms; None if it does not announce that."""
        return _number(self.described.get("took_ms"))

    @property
    def busy(self) -> int | None:
        """Return how many threads run a handler, of any queue; None if it does not announce that."""
        return _busy(self.described.get("busy"))[0]

    @property
    def coroutines(self) -> int:
        """Return how many coroutines run, of any queue."""
        return _busy(self.described.get("busy"))[1] or 0

    @property
    def full(self) -> Sequence[FullSlots]:
        """Return the kinds of slots that are all busy."""
        return tuple(_full(self.described.get("full"), self.seen_ms_ago or 0))

    @property
    def is_fetching(self) -> bool:
        """Return whether it is alive and fetches messages. A quarantine runs only what must run alone."""
        fetches = self.alive and self.is_process and self.state == "running"
        return fetches and self.described.get("quarantine") is not True

    @property
    def is_starting(self) -> bool:
        """Return whether it is a process that has not loaded the project yet."""
        return self.described.get("starting") is True

    @property
    def is_ready(self) -> bool:
        """Return whether it has started and fetches messages."""
        return self.is_fetching and not self.is_starting

    @property
    def is_process(self) -> bool:
        """Return whether it is a process. The backlog of a quarantine is listed as a consumer with 0 threads."""
        return self._shared("threads") != 0

    @property
    def alive(self) -> bool:
        """Return whether its supervisor has sent a heartbeat recently."""
        return self.seen_ms_ago is not None and self.seen_ms_ago <= ALIVE_MS

    def _shared(self, name: str) -> object:
        """Return a field that its supervisor may have announced for all its consumers."""
        return self.described[name] if name in self.described else self.announced.get(name)


class Consumers(Sequence[ConsumerView]):
    """The consumers of a queue, live ones first, each read when it is asked for.

    Of most queues a page of all asks only whether there is a live one, and they have thousands.
    """

    __slots__ = ("_first", "_found", "_membership", "_now_ms")

    def __init__(self, membership: Membership, *, now_ms: int) -> None:
        self._membership, self._now_ms = membership, now_ms
        #: The first one, and all, once they were asked for.
        self._first: ConsumerView | None = None
        self._found: tuple[ConsumerView, ...] | None = None

    def __len__(self) -> int:
        return len(self._membership.consumers)

    def __getitem__(self, index: Any) -> Any:
        return self._all()[index]

    def __iter__(self) -> Iterator[ConsumerView]:
        if self._found is None:
            self._first = self._first or self._first_live()
        if self._first is not None:
            yield self._first
        yield from self._all() if self._first is None else self._all()[1:]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # what it was read from may be changed

    def _first_live(self) -> ConsumerView | None:
        """Return the one with the first id if it is alive: then it is the first of all."""
        described = self._membership.consumers
        found = [(name, described[name]) for name in [min(described, default="")] if name]
        return next((view for view in _views(self._membership, found, self._now_ms) if view.alive), None)

    def each(self) -> Iterator[ConsumerView]:
        """Yield all, in any order, and keep none."""
        return _views(self._membership, self._membership.consumers.each(), self._now_ms)

    def _all(self) -> tuple[ConsumerView, ...]:
        if self._found is None:
            self._found = tuple(sorted(self.each(), key=lambda view: (not view.alive, view.id)))
        return self._found


def each_once(found: Sequence[ConsumerView]) -> Iterable[ConsumerView]:
    """Return the consumers of a queue, in any order, to read once: what is kept of thousands takes time."""
    return found.each() if isinstance(found, Consumers) else found


def housekeepers_of(membership: Membership, *, now_ms: int) -> tuple[ConsumerView, ...]:
    """Return the live supervisors that do the housekeeping of a queue and have no consumers in it.

    They are shown as consumers without threads.
    """
    keep = [name for name, described in membership.supervisors.items() if described.get(HOUSEKEEPING) is True]
    if not keep:
        return ()
    consuming = {supervisor_of(described) for described in membership.consumers.values()}
    described = [(name, {"supervisor": name, "threads": 0}) for name in keep if name not in consuming]
    found = _views(membership, described, now_ms)
    return tuple(sorted((one for one in found if one.alive), key=lambda one: one.id))


def _views(
    membership: Membership, described: Iterable[tuple[str, Mapping[str, Any]]], now_ms: int
) -> Iterator[ConsumerView]:
    asks, of_supervisor = membership.asks, dict[str, tuple[int | None, str, Mapping[str, Any]]]()
    for name, announced in described:
        supervisor = supervisor_of(announced)
        known = of_supervisor.get(supervisor)
        if known is None:
            seen = membership.seen_ms.get(supervisor)
            ago = None if seen is None else max(0, now_ms - seen)
            known = ago, asks.get(supervisor, ""), membership.supervisors.get(supervisor, {})
            of_supervisor[supervisor] = known
        yield ConsumerView(
            id=name,
            supervisor=supervisor,
            seen_ms_ago=known[0],
            asked=asks.get(name) or known[1],
            described=announced,
            announced=known[2],
        )


def _state(word: object) -> State:
    return word if word == "quiet" or word == "stopping" else "running"


def _running(described: object, ago: int) -> Iterable[RunningView]:
    # Invalid entries, which other programs may have written, are left out.
    for item in described if isinstance(described, list) else ():
        match item:
            case [int(source), str(entry), int(ms)]:
                yield RunningView(source=source, entry=entry, ms=(whole(ms, LAST_MS) or 0) + ago)


def _busy(described: object) -> tuple[int | None, int | None]:
    match described:
        case [int(threads), int(coroutines)]:
            return whole(threads), whole(coroutines)
    return None, None


def _full(described: object, ago: int) -> Iterable[FullSlots]:
    for kind in SLOT_KINDS:
        match described.get(kind) if isinstance(described, dict) else None:
            case [str(queue), int(source), str(entry), int(longest), int(shortest)]:
                ages = [(whole(ms, LAST_MS) or 0) + ago for ms in (longest, shortest)]
                running = RunningView(source=source, entry=entry, ms=ages[0])
                yield FullSlots(kind=kind, queue=queue, longest=running, ms=ages[1])


def _number(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= LARGEST else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
