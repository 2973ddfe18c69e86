"""Named points at which a process of a run ends or stops at once, when it is told to: the first that gets there does.

All of it is the harness's: it wraps what it finds, and the product knows no such points.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mq_django import signals
from mq_django.consumers.worker.consumer import StepService
from mq_django.consumers.worker.dispatcher import Dispatcher
from mq_django.consumers.worker.settler import Settler
from mq_django.stores.stream_store import StreamStore
from mq_django.stores.workflow_home import Advanced, StepNotes, WorkflowHome
from mq_django.transport import scripts
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Session
from tests.chaos.observing import note
from tests.one_slot import is_several

#: Where a consumer ends, and when it gets there.
OF_CONSUMERS = {
    "taken": "it has taken messages, and begun none of them",
    "started": "a handler is about to run",
    "effect": "a handler has had its effect, and has not returned",
    "ended": "a handler has returned, and its outcome lies with the settler",
    "unsent": "a batch of acks is about to be sent",
    "sent": "acks were sent, and there is no reply yet",
    "settled": "the reply to acks has come",
    "handing-back": "asked to stop, it has sent back what it had not begun",
}
#: Where a supervisor ends.
OF_SUPERVISORS = {
    "promoting": "it has asked for what is due to become ready",
    "reclaiming": "it is settling for a consumer that has died",
    "beating": "it has said that it lives",
}

#: Where a process ends that passes on how a step of a workflow has ended: a consumer, or for one that has died a
#: supervisor.
OF_FLOWS = {
    "step-settled": "a step is settled, and its run does not know yet",
    "run-advanced": "the run knows, and what may start now is not published",
    "steps-published": "that is published, and still in the list of what is to be published",
    "starts-forgotten": "it is not in that list any more, and the note about the step still exists",
}

_SCRIPTS = {
    "ack": ("settle ack", "settle step"),
    "retry": ("settle retry",),
    "hand-back": ("settle hand_back",),
    "promote": ("waiting_promote",),
    "beat": ("members_heartbeat",),
}

#: What the file of a point says if a process is to stop there.
STOPS = "stop"

_folder: Path | None = None
_is_consumer = False


def install(folder: Path) -> None:
    """Let this process end at points from now on; what it does is noted before."""
    global _folder  # noqa: PLW0603 - a process has one
    _folder = folder
    signals.consumer_started.connect(_began)
    signals.handler_started.connect(_started)
    signals.handler_finished.connect(_finished)
    Dispatcher.dispatch = _dispatching(Dispatcher.dispatch)  # type: ignore[method-assign]
    Settler._settled = _settling(Settler._settled)  # type: ignore[method-assign]
    Session.send = _sending(Session.send)  # type: ignore[method-assign]
    StepService.settled = before("step-settled", StepService.settled)  # type: ignore[method-assign]
    WorkflowHome.advance = _advancing(WorkflowHome.advance)  # type: ignore[method-assign]
    StreamStore.start = _starting(StreamStore.start)  # type: ignore[method-assign]
    StepNotes.forget = before("starts-forgotten", StepNotes.forget)  # type: ignore[method-assign]


def arm(folder: Path, point: str, *, stops: bool = False) -> Path:
    """Tell the processes of a run that one is to end at a point, or to stop; the file goes when one has."""
    path = folder / f"at-{point}"
    if stops:
        # Written before it has this name: a process may get there at once.
        whole = folder / f"arming-{point}"
        whole.write_text(STOPS, encoding="ascii")
        whole.rename(path)
    else:
        path.touch()
    return path


def stopped_at(folder: Path, point: str) -> int:
    """Return the process that has stopped at a point since the last call, or 0."""
    for path in folder.glob(f"stopped-{point}-*"):
        path.unlink()
        return int(path.name.rpartition("-")[2])
    return 0


def reached(point: str) -> None:
    """End or stop this process if it is told to do so here."""
    if _folder is None:
        return
    pid = os.getpid()
    path = _folder / f"stopped-{point}-{pid}"
    try:
        # One process alone can take it away.
        (_folder / f"at-{point}").rename(path)
    except FileNotFoundError:
        return
    if path.read_text(encoding="ascii") == STOPS:
        os.kill(pid, signal.SIGSTOP)
        return
    path.unlink()
    note("fault", fault=f"{point}-{pid}", kind=f"at-{point}", began=time.monotonic(), pids=[pid])
    os.kill(pid, signal.SIGKILL)


def _began(**_: Any) -> None:
    global _is_consumer  # noqa: PLW0603 - a process is one or not
    _is_consumer = True


def _started(**_: Any) -> None:
    reached("started")


def _finished(**_: Any) -> None:
    reached("ended")


def _dispatching(dispatch: Callable[..., None]) -> Callable[..., None]:
    def watched(self: Dispatcher, taken: Sequence[Any]) -> None:
        if taken:
            reached("taken")
        dispatch(self, taken)

    return watched


def _settling(settled: Callable[..., None]) -> Callable[..., None]:
    def watched(self: Settler, *args: Any) -> None:
        reached("settled")
        settled(self, *args)

    return watched


def before(point: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with a point before each call of it."""

    def watched(*args: Any, **options: Any) -> Any:
        reached(point)
        return call(*args, **options)

    return watched


def _advancing(advance: Callable[..., Advanced]) -> Callable[..., Advanced]:
    def watched(*args: Any, **options: Any) -> Advanced:
        advanced = advance(*args, **options)
        if advanced.starts:
            reached("run-advanced")
        return advanced

    return watched


def _starting(start: Callable[..., list[bool]]) -> Callable[..., list[bool]]:
    def watched(*args: Any, **options: Any) -> list[bool]:
        published = start(*args, **options)
        reached("steps-published")
        return published

    return watched


def _step_of(command: Command) -> str:
    """Return the script that a command runs, and of one that settles also the outcome."""
    name = scripts.name_of(command)
    if name == "waiting_promote" and is_several(command):
        # It only reads when the next messages are due.
        return ""
    return f"settle {command[3 + int(command[2])]}" if name == "settle" else name


def _sending(send: Callable[..., None]) -> Callable[..., None]:
    verbs = {step: verb for verb, steps in _SCRIPTS.items() for step in steps}

    def watched(self: Session, commands: Sequence[Command]) -> None:
        of_consumer = _is_consumer
        there = {verbs.get(_step_of(command)) for command in commands}
        if of_consumer and "ack" in there:
            reached("unsent")
        send(self, commands)
        for point, verb in (_AFTER_CONSUMERS if of_consumer else _AFTER_SUPERVISORS).items():
            if verb & there:
                reached(point)

    return watched


#: What was sent a moment ago, by point.
_AFTER_CONSUMERS: Mapping[str, set[str | None]] = {"sent": {"ack"}, "handing-back": {"hand-back"}}
_AFTER_SUPERVISORS: Mapping[str, set[str | None]] = {
    "promoting": {"promote"},
    "reclaiming": {"ack", "retry", "hand-back"},
    "beating": {"beat"},
}
