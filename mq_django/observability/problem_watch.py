"""Look at all queues and runs from time to time: send signals of problems, note how many messages there are, repair.

Signals are sent if the project has receivers. Counters have the activity of queues by handler. The charts of the admin
need two figures besides, once a minute: messages by state, and what consumers have done by host and version. No message
pays for them: they are counted where messages are, and read from heartbeats.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from operator import add
from typing import NamedTuple

from django.db import close_old_connections
from django.dispatch import Signal

from mq_django.conf import QueueConfig, get_config
from mq_django.consumers.decisions import send
from mq_django.consumers.service import Service
from mq_django.core import clock
from mq_django.core.keys import HostKeys
from mq_django.core.logs import get_logger
from mq_django.core.project import Problem
from mq_django.core.texts import truncate
from mq_django.errors import NotPermitted, StoreError
from mq_django.inspector.problem_list import KINDS, QueueProblem, problems_among
from mq_django.inspector.queue_view import STATES, QueueView
from mq_django.inspector.queues import overview, transports_of, whole_configs
from mq_django.inspector.run_check import check_runs
from mq_django.producers.workflow_run import repair
from mq_django.producers.workflow_steps import open_homes
from mq_django.signals import problem_began, problem_ended
from mq_django.stores.control import ProblemNote, ProblemNotes, claim_checks, read_notes
from mq_django.stores.counters import Worked, claim_sample, note_depths, note_work
from mq_django.transport.connections import open_transport
from mq_django.transport.sessions import Transport

#: Seconds between two checks of a queue.
EVERY = 10.0
#: A problem has begun when two checks within this many milliseconds have found it, and ended when none has for as long.
QUIET_MS = 60_000
#: The longest sentence that is noted.
MAX_SENTENCE = 1000


class _Watched(NamedTuple):
    """A queue that this process looks at."""

    config: QueueConfig
    transport: Transport
    view: QueueView
    problems: Mapping[Problem, QueueProblem]
    notes: Sequence[ProblemNote]


class ProblemWatcher(Service):
    """Looks at all queues. Any number of processes may do so: one looks at a queue at a time, one sends a signal."""

    name = "watcher of problems"

    def __init__(self) -> None:
        super().__init__()
        self._is_sending = False

    def run_once(self) -> float:
        """Look at the queues at which no other process looks."""
        configs = whole_configs()
        transports = transports_of(configs)
        claims = claim_checks(configs, transports, 0.9 * EVERY)
        # The queues on a server that cannot be reached are left out: nothing can be noted there.
        claimed = [
            (config, transport)
            for config, transport, is_ours in zip(configs, transports, claims, strict=True)
            if is_ours is True
        ]
        if claimed:
            self.each(
                self._watched(claimed),
                self._check,
                called=lambda watched: watched.config.name,
                server=lambda watched: watched.config.connection,
            )
        return EVERY

    def _watched(self, claimed: Sequence[tuple[QueueConfig, Transport]]) -> list[_Watched]:
        """Return the claimed queues that have or had problems."""
        configs, transports = [config for config, _ in claimed], [transport for _, transport in claimed]
        names = [config.name for config in configs]
        views, notes = overview(names), read_notes(configs, transports, KINDS)
        found: dict[str, dict[Problem, QueueProblem]] = {name: {} for name in names}
        # The outboxes are in databases, in which this thread has connections of its own.
        close_old_connections()
        for problem in problems_among(views, names):
            # That of a topic or of a database has no queue whose key could note it.
            found.get(problem.queue, {}).setdefault(problem.kind, problem)
        close_old_connections()
        return [
            _Watched(config, transport, view, found[config.name], noted)
            for config, transport, view, noted in zip(configs, transports, views, notes, strict=True)
            if not isinstance(noted, StoreError) and (noted or found[config.name])
        ]

    def _check(self, watched: _Watched) -> None:
        """Note the problems of a queue, and send the signals of those that have begun or ended."""
        view, now_ms = watched.view, watched.view.now_ms or clock.now_ms()
        before = {note.kind: note for note in watched.notes}
        # A muted one neither begins nor ends.
        found = {kind: problem for kind, problem in watched.problems.items() if problem.mute is None}
        seen = [_note(problem, before.get(kind), now_ms) for kind, problem in found.items()]
        begun = [note.kind for note in seen if not note.announced and note.first_ms < now_ms]
        # Whether a queue that cannot be read has other problems is unknown.
        gone = [note for kind, note in before.items() if kind not in watched.problems and not view.error]
        ended = [note.kind for note in gone if now_ms - note.last_ms >= QUIET_MS]
        changed = ProblemNotes(watched.config, watched.transport).write(seen, begun=begun, ended=ended)
        for kind in KINDS:
            if kind in changed and kind in found:
                self._send(problem_began, queue=watched.config.name, problem=found[kind])
            elif kind in changed:
                note = before[kind]
                lasted = timedelta(milliseconds=max(0, note.last_ms - note.first_ms))
                problem = _problem(watched.config.name, kind, note)
                self._send(problem_ended, queue=problem.queue, problem=problem, lasted=lasted)

    def progress(self) -> Mapping[str, object]:
        """See Service.progress(). A receiver may take its time, for example to send a mail."""
        return {} if self._is_sending else super().progress()

    def _send(self, signal: Signal, **arguments: object) -> None:
        """Send a signal. Receivers may use the database, in which this thread has a connection of its own."""
        self._is_sending = True
        try:
            close_old_connections()
            send(signal, QueueProblem, **arguments)
            close_old_connections()
        finally:
            self.progressed = time.monotonic()
            self._is_sending = False


def _note(problem: QueueProblem, before: ProblemNote | None, now_ms: int) -> ProblemNote:
    """Return what is noted of a problem that was found now."""
    known = before is not None and (before.announced or now_ms - before.last_ms < QUIET_MS)
    return ProblemNote(
        kind=problem.kind,
        first_ms=(before.first_ms if known and before is not None else 0) or now_ms,
        last_ms=now_ms,
        sentence=truncate(problem.sentence, MAX_SENTENCE),
        figure=problem.figure,
        threshold=problem.threshold,
        announced=before is not None and before.announced,
    )


def _problem(queue: str, kind: Problem, note: ProblemNote) -> QueueProblem:
    return QueueProblem(queue=queue, kind=kind, sentence=note.sentence, figure=note.figure, threshold=note.threshold)


logger = get_logger(__name__)

#: Seconds between two samples.
SAMPLE_EVERY = 60.0


class Sampler(Service):
    """Any number of processes may do so: one takes each sample."""

    name = "sampler"

    def __init__(self) -> None:
        super().__init__()
        self._keys = HostKeys(get_config().namespace)

    def run_once(self) -> float:
        """Take a sample of this minute, unless another process has."""
        # A Redis user for some queues may not have these keys: then the charts have only what queues count.
        with suppress(NotPermitted):
            if claim_sample(open_transport("inspect", ""), self._keys, 0.9 * SAMPLE_EVERY):
                views = overview(minutes=0)
                self._note_depths(views)
                note_work(open_transport("inspect", ""), self._keys, worked(views))
        return SAMPLE_EVERY - clock.now() % SAMPLE_EVERY

    def _note_depths(self, views: Sequence[QueueView]) -> None:
        parts = {part.name: part for view in views for part in view.each_part if not part.error}
        configs = [part for config in whole_configs() for part in config.each_part if part.name in parts]
        depths = [{state: getattr(parts[config.name], state) for state in STATES} for config in configs]
        found = note_depths([config.keys for config in configs], transports_of(configs), depths)
        for config, error in zip(configs, found, strict=True):
            if isinstance(error, StoreError):
                logger.warning("Queue %s is not in this sample of the admin's metrics: %s", config.name, error)


def worked(views: Sequence[QueueView]) -> dict[str, Worked]:
    """Return what the live consumers of queues have done in all of these since they started."""
    found: dict[str, Worked] = {}
    for view in views:
        for one in view.consumers:
            if one.alive and one.is_process:
                before = found.get(one.id)
                counts = before[3:] if before else (0, 0, 0)
                more = (one.handled, one.failed, one.took_ms or 0)
                found[one.id] = Worked(one.host, one.release, one.since_ms, *map(add, counts, more))
    return found


# Repair runs of workflows of which other programs or failovers have taken something.
#
# Every supervisor does this: a project may start its runs in processes that no consumer resembles, from modules that
# none imports. So this imports nothing of `mq_django.workflows`.

#: Seconds between two checks of all runs.
RUNS_EVERY = 60.0
#: What is younger may be under way, in ms: consumers and supervisors continue it within seconds.
OLD_MS = 120_000
#: What is repaired. Starts are not: supervisors try them again each second, and a full queue may refuse them for hours.
REPAIRED = frozenset({"message", "dead", "stopped"})
#: Seconds for which a check searches queues. A message that waits in a longer queue is not searched to its end.
SEARCH = 2.0


class RunRepairer(Service):
    """Checks all runs that have not ended. Any number of processes may do so: one does it at a time."""

    name = "repairer of runs"

    def run_once(self) -> float:
        """Check the runs, and repair what is found."""
        try:
            claimed = [home.claim_check(0.9 * RUNS_EVERY) for home in open_homes()]
        except NotPermitted:
            # A project without workflows need not grant their keys.
            return RUNS_EVERY
        if any(claimed):
            self._check()
        return RUNS_EVERY

    def _check(self) -> None:
        found = check_runs(seconds=SEARCH, old_ms=OLD_MS, with_ended=False, progressed=self._progressed)
        problems = [problem for problem in found.problems if problem.kind in REPAIRED]
        for problem in problems:
            text = "Repairing run %s: what another program or a failover took of step %s (%s)"
            logger.warning(text, problem.run, problem.step or "-", problem.kind)
        left = [problem for problem in found.problems if problem.kind not in REPAIRED]
        for home in open_homes():
            home.note_stuck([problem for problem in left if problem.home == home.keys.home], 3 * RUNS_EVERY)
        self.each(problems, repair, called=lambda problem: f"run {problem.run}")

    def _progressed(self) -> None:
        self.progressed = time.monotonic()
