"""All consumers of all queues as processes, and asking them to go quiet or to stop."""

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mq_django.conf import get_config
from mq_django.core.partitions import public_name
from mq_django.core.running_handler import Progress
from mq_django.core.stacks import Stacks, read_stacks
from mq_django.errors import StoreError
from mq_django.inspector.consumers import ConsumerView, RunningView, State, each_once
from mq_django.inspector.message_views import MessageView, progress_of
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import all_configs, bare, overview
from mq_django.inspector.readers import held
from mq_django.inspector.stream_reader import Receipt
from mq_django.stores import open_members
from mq_django.stores.activity import Effect, recorded
from mq_django.stores.control import StackRequests
from mq_django.stores.members import Members
from mq_django.transport.connections import open_transport

#: The requests that a consumer accepts.
Ask = Literal["quiet", "stop"]

#: By queue and receipt: a message, and what its handler has reported last.
Known = Mapping[tuple[str, Receipt], tuple[MessageView, Progress | None]]

#: The most running deliveries of one queue whose messages are read.
MAX_RUNNING = 200
#: The most consumers that are listed, live ones first. Other programs may have written any number.
MAX_PROCESSES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMessage:
    """A message that a consumer is handling."""

    queue: str
    #: How long its handler has run, in ms.
    ms: int
    message: MessageView
    #: The last report of its handler.
    progress: Progress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessView:
    """A consumer: one process, with all queues that it consumes."""

    id: str
    pid: int | None
    threads: int | None
    #: Threads and coroutines that run a handler; None if that is not announced.
    busy: int | None
    coroutines: int
    #: Milliseconds since 1970.
    since_ms: int | None
    state: State
    #: "quiet" or "stop" if it or its supervisor was asked to do so.
    asked: str
    queues: Sequence[str]
    #: The longest first.
    running: Sequence[RunningMessage]
    #: Deliveries since the process started.
    handled: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorView:
    """One `runconsumer` and its processes."""

    id: str
    host: str
    version: str
    #: Milliseconds since its last heartbeat; None when there was none.
    seen_ms_ago: int | None
    alive: bool
    processes: Sequence[ProcessView]
    #: The queues whose housekeeping it does without consuming them.
    housekeeping: Sequence[str] = ()
    #: "quiet" or "stop" if it was asked to do so and has queues without consumers.
    asked: str = ""

    @property
    def queues(self) -> list[str]:
        """Return the queues that it consumes."""
        return sorted({queue for process in self.processes for queue in process.queues})


@dataclass(frozen=True, slots=True, kw_only=True)
class Everybody:
    """All consumers, at `now_ms` of the server's clock."""

    now_ms: int
    supervisors: Sequence[SupervisorView]
    #: Queues and groups without a live consumer, except those that other programs handle.
    alone: Sequence[str]
    #: Queue whose consumers cannot be read -> its error.
    errors: Mapping[str, str]
    #: How many more consumers there are.
    left_out: int = 0


def everybody(only: str = "") -> Everybody:
    """Return up to MAX_PROCESSES consumers, live ones first.

    Args:
        only: only the consumer or supervisor with this id.

    Raises:
        ConfigurationError: a setting is wrong.
        StoreError: cannot reach Redis.
    """
    found = bare(all_configs())
    views = [view for view in found if not view.error]
    sums = _added_up(views, only)
    known = _known(sums.values())
    live_first = sorted(sums.values(), key=lambda one: not one.latest.alive)
    by_supervisor: dict[str, list[_Sum]] = defaultdict(list)
    for each in live_first[:MAX_PROCESSES]:
        by_supervisor[each.latest.supervisor].append(each)
    housekeeping = _housekeeping(views)
    supervisors = [
        _supervisor(name, by_supervisor[name], housekeeping.get(name, ()), known)
        for name in dict.fromkeys([*by_supervisor, *housekeeping])
    ]
    served: dict[str, bool] = defaultdict(bool)
    for view in views:
        served[public_name(view.name)] |= view.is_served
    return Everybody(
        now_ms=max((view.now_ms for view in views), default=0),
        supervisors=sorted(supervisors, key=lambda found: (not found.alive, found.host, found.id)),
        alone=[name for name, is_served in served.items() if not is_served],
        errors={view.name: view.error for view in found if view.error},
        left_out=max(0, len(live_first) - MAX_PROCESSES),
    )


@dataclass(slots=True)
class _Sum:
    """One consumer in all queues, added up while they are read: each queue has a description of it."""

    #: As the queue has it that got its latest heartbeat: its supervisor sends one after another.
    latest: ConsumerView
    queues: list[str] = field(default_factory=list)
    running: list[tuple[str, RunningView]] = field(default_factory=list)
    handled: int = 0
    failed: int = 0
    asked: str = ""

    def add(self, queue: str, said: ConsumerView) -> None:
        if _age(said) < _age(self.latest):
            self.latest = said
        self.queues.append(queue)
        self.running += [(queue, item) for item in said.running]
        self.handled += said.handled
        self.failed += said.failed
        if said.asked:
            self.asked = _most((self.asked, said.asked))


def _age(said: ConsumerView) -> float:
    return math.inf if said.seen_ms_ago is None else said.seen_ms_ago


def _added_up(views: Sequence[QueueView], only: str) -> dict[tuple[str, str], _Sum]:
    """Return the consumers of all queues, or only one, or the ones of one supervisor."""
    sums: dict[tuple[str, str], _Sum] = {}
    for view in views:
        for said in each_once(view.consumers):
            if (not only or only in (said.id, said.supervisor)) and said.is_process:
                found = sums.get((said.supervisor, said.id))
                if found is None:
                    found = sums[said.supervisor, said.id] = _Sum(said)
                found.add(view.name, said)
    return sums


def ping(*queues: str) -> dict[str, list[str]]:
    """Return the consumers that fetch messages now: the id of each, and the queues and groups that it handles.

        if not ping("emails"):
            raise CommandError("nobody handles the queue emails")

    A consumer counts when its supervisor, which watches it, has sent a heartbeat lately. So nothing is sent to it, and
    one that is starting, quiet, stopping or replaced does not count.

    Args:
        queues: only consumers of these queues, and of groups as "topic:group"; none: of all.

    Raises:
        UnknownQueue: a queue is not configured.
        ConfigurationError: a setting is wrong.
        StoreError: cannot reach Redis, or not the node of one of the queues.
    """
    found: dict[str, list[str]] = {}
    for whole in overview(queues, minutes=0):
        for view in whole.each_part:
            if view.error:
                raise StoreError(f"Queue {view.name!r}: {view.error}")
            for consumer in view.consumers:
                if consumer.is_ready and whole.name not in (handled := found.setdefault(consumer.id, [])):
                    handled.append(whole.name)
    return found


@recorded(
    lambda given: given["what"],
    queue="",
    about="who",
    by="",
    effect=lambda _, queues: Effect(len(queues), queues=queues),
)
def ask(who: str, what: Ask) -> list[str]:
    """Ask a consumer, or a supervisor with all its consumers, to stop fetching, or to stop gracefully.

    It reads this with its next heartbeat. A consumer that was asked to stop is not replaced. A supervisor stops with
    its last consumer.

    Args:
        who: the id of a consumer or of a supervisor.
        what: "quiet" or "stop".

    Returns:
        The queues and groups that it consumes; empty if it is gone.

    Raises:
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    return _public(
        view.name
        for whole in overview(minutes=0)
        for view in whole.each_part
        if any(who in (one.id, one.supervisor) for one in (*view.consumers, *view.housekeepers))
        and _members(view.name).ask(who, what) != "GONE"
    )


def _public(names: Iterable[str]) -> list[str]:
    """Return the names of queues; of their partitions each queue once."""
    return list(dict.fromkeys(map(public_name, names)))


def _members(name: str) -> Members:
    config = get_config().queue(name)
    return open_members(config, open_transport("inspect", config.connection))


def _known(sums: Iterable[_Sum]) -> Known:
    """Return the messages that live consumers are handling, with what their handlers have reported."""
    receipts: dict[str, list[Receipt]] = defaultdict(list)
    for one in sums:
        for queue, item in one.running if one.latest.alive else ():
            receipts[queue].append((item.source, item.entry))
    found = held({queue: each[:MAX_RUNNING] for queue, each in receipts.items()})
    running = [(queue, receipt, message) for queue, known in found.items() for receipt, message in known.items()]
    reported = progress_of([(queue, message.id) for queue, _, message in running])
    return {
        (queue, receipt): (message, progress)
        for (queue, receipt, message), progress in zip(running, reported, strict=True)
    }


def _housekeeping(views: Sequence[QueueView]) -> Mapping[str, Sequence[tuple[str, ConsumerView]]]:
    """Return by supervisor the queues whose housekeeping it does, and in which it has no consumers."""
    found = defaultdict(list)
    for view in views:
        for housekeeper in view.housekeepers:
            found[housekeeper.id].append((view.name, housekeeper))
    return found


def _process(found: _Sum, known: Known) -> ProcessView:
    one = found.latest
    running = [
        RunningMessage(queue=queue, ms=item.ms, message=message, progress=progress)
        for queue, item in found.running
        # Those that are not known have finished since the heartbeat.
        if (at := (queue, (item.source, item.entry))) in known
        for message, progress in [known[at]]
    ]
    return ProcessView(
        id=one.id,
        pid=one.pid,
        threads=one.threads,
        busy=one.busy,
        coroutines=one.coroutines,
        since_ms=one.since_ms,
        state=one.state,
        asked=found.asked,
        queues=_public(found.queues),
        running=sorted(running, key=lambda item: -item.ms),
        handled=found.handled,
        failed=found.failed,
    )


def _most(asked: Iterable[str]) -> str:
    words = set(asked)
    return "stop" if "stop" in words else "quiet" if "quiet" in words else ""


def _supervisor(
    name: str, found: Sequence[_Sum], housekeeping: Sequence[tuple[str, ConsumerView]], known: Known
) -> SupervisorView:
    views = [*(one.latest for one in found), *(view for _, view in housekeeping)]
    latest = min(views, key=_age)
    return SupervisorView(
        id=name,
        host=latest.host,
        version=latest.version,
        seen_ms_ago=latest.seen_ms_ago,
        alive=latest.alive,
        processes=sorted((_process(each, known) for each in found), key=lambda process: process.id),
        housekeeping=_public(queue for queue, _ in housekeeping),
        asked=_most(one.asked for _, one in housekeeping),
    )


# Ask a consumer for the stacks of what it runs, and read its answer. Secrets are replaced.

#: Seconds to wait for an answer: longer than a supervisor needs that has missed the notification.
WAIT = 3.0
#: Seconds between two looks for the answer.
CHECK_EVERY = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class StackRequest:
    """A request to a consumer."""

    consumer: str
    #: The queue through which it was asked.
    queue: str
    #: The time of the request by the clock of the queue's server, in ms since 1970.
    asked_ms: int


def find_process(consumer: str) -> tuple[SupervisorView, ProcessView] | None:
    """Return a consumer with its supervisor, None if there is none with this id.

    Raises:
        StoreError: cannot reach Redis.
    """
    found = ((one, process) for one in everybody(consumer).supervisors for process in one.processes)
    return next(((one, process) for one, process in found if process.id == consumer), None)


def ask_for_stacks(consumer: str, queues: Sequence[str]) -> StackRequest | None:
    """Ask a consumer for the stacks of what it runs, through one of its queues; None if it is gone.

    Raises:
        UnknownQueue: a queue is not configured.
        StoreError: cannot reach Redis.
    """
    for part in [part for queue in queues for part in get_config().queue(queue).each_part]:
        asked = _requests(part.name).ask(consumer)
        if asked is not None:
            return StackRequest(consumer=consumer, queue=part.name, asked_ms=asked)
    return None


def read_answer(request: StackRequest, *, seconds: float = 0.0) -> Stacks | None:
    """Return the answer to a request, None if there is no valid one within some seconds.

    A consumer cannot answer while a handler holds the GIL.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    requests, deadline = _requests(request.queue), time.monotonic() + seconds
    while (text := requests.read(request.consumer, request.asked_ms)) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(CHECK_EVERY, left))
    return read_stacks(text)


def _requests(queue: str) -> StackRequests:
    config = get_config().queue(queue)
    return StackRequests(config, open_transport("inspect", config.connection))
