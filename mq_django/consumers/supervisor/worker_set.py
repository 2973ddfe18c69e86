"""The consumers of a supervisor: started, watched, replaced."""

from collections.abc import Callable, Collection

from mq_django.consumers.decisions import Evidence
from mq_django.consumers.shared_state import Receipt
from mq_django.consumers.supervisor.quarantine import Quarantines
from mq_django.consumers.supervisor.reclaimer import evidence_of
from mq_django.consumers.supervisor.restarts import Restarts
from mq_django.consumers.supervisor.watchdog import Decision
from mq_django.consumers.supervisor.worker_process import WorkerOptions, WorkerProcess, spawn
from mq_django.consumers.supervisor.worker_states import WorkerStates
from mq_django.core.ids import token
from mq_django.core.logs import get_logger

logger = get_logger(__name__)

#: Seconds between two looks at what comes to a process that does not respond: its blocked reads still take messages.
SUSPEND_AGAIN = 1.0
#: Seconds until a process is started that the system just refused to start.
REFUSED_PAUSE = 0.5


class WorkerSet:
    """Keeps a number of consumers alive. One thread calls it; other threads use the states."""

    def __init__(
        self,
        supervisor: str,
        terms: WorkerOptions,
        states: WorkerStates,
        *,
        processes: int,
        on_exit: Callable[[str, Evidence], None],
        on_unresponsive: Callable[[str, Collection[Receipt]], None],
        name: Callable[[str, Collection[Receipt]], None],
    ) -> None:
        self._supervisor = supervisor
        self._terms = terms
        self._states = states
        self._processes = processes
        #: Told of a consumer that has ended, and what its shared state says.
        self._on_exit = on_exit
        #: Told of a consumer that does not respond, and what it has begun.
        self._on_unresponsive = on_unresponsive
        #: Told of a consumer that is replaced, and what it runs past its timeout, to log the names of that.
        self._name = name
        self._stopping = False
        self._restarts = Restarts()
        self._quarantines = Quarantines(processes, on_exit)
        self._to_renew: list[WorkerProcess] = []
        self._renewing: tuple[WorkerProcess, WorkerProcess] | None = None
        #: Nobody is started any more.
        self._quiet = False

    @property
    def is_drained(self) -> bool:
        """Tell whether every consumer found nothing more to do."""
        return not self._processes

    def look(self, now: float) -> bool:
        """See to everybody once; tell whether there is something to announce soon."""
        self._let_go_of_the_dead(now)
        back = self._obey()
        for child in self._states:
            self._watch(child, now)
            back |= self._suspend(child, now) | _has_fallen_quiet(child)
        before = len(self._states)
        self._renew(now)
        self._fill_up(now)
        self._keep_quarantines(now)
        return back or len(self._states) > before

    def stop(self) -> None:
        """Ask all to finish; asked again, to hand back at once."""
        self._stopping = True
        self._to_renew, self._renewing = [], None
        for child in self._states:
            child.terminate()

    def renew(self) -> None:
        """Replace the consumers one after another, so that the new ones run the code as it is now."""
        self._to_renew = [child for child in self._states if not child.leaving]

    def begin_anew(self, supervisor: str) -> None:
        """Replace all consumers at once: others took them for dead, and may have what they hold."""
        self._supervisor = supervisor
        self._quarantines.end_backlog()
        self._states.evict()
        for child in self._states:
            if not child.leaving:
                child.terminate()

    def _start(self, now: float, *, quarantine: bool = False) -> WorkerProcess | None:
        """Start a process; None when the system refuses, which is tried again."""
        restarts = self._quarantines.restarts if quarantine else self._restarts
        deaths = restarts.take(now)
        name = f"{self._supervisor}-{token()[:6]}"
        backlog = self._quarantines.backlog(name) if quarantine else ""
        try:
            child = spawn(name, self._supervisor, self._terms, backlog=backlog, deaths=deaths)
        except OSError as error:
            pause = restarts.ended(now, deaths + 1, at_least=REFUSED_PAUSE)
            logger.error("Cannot start a consumer process: %s. Next attempt in %g s", error, pause)  # noqa: TRY400
            return None
        self._states.add(child)
        return child

    def _active(self) -> list[WorkerProcess]:
        """Return who counts as one of those that there shall be; a dismissed one does until it has ended."""
        return [child for child in self._states if not child.quarantine and (child.dismissed or not child.leaving)]

    def _is_ready(self, child: WorkerProcess) -> bool:
        """Tell whether a process takes messages: it has started, and was announced where that is possible."""
        return bool(child.shared_state.ticks() and child.announced)

    def _is_renewed(self, child: WorkerProcess) -> bool:
        """Tell whether a successor of a process has started, or will."""
        return child.leaving or child in self._to_renew or (self._renewing is not None and self._renewing[0] is child)

    def _active_quarantines(self) -> list[WorkerProcess]:
        return [child for child in self._states if child.quarantine and not child.leaving]

    def _obey(self) -> bool:
        """Do what people ask, and tell whether there was something.

        Who is to stop is not replaced; who is to be quiet stays until it is told to stop.
        """
        asked = self._states.take_asked()
        whole = asked.get(self._supervisor)
        self._quiet |= whole == "quiet"
        for child in self._states:
            what = asked.get(child.consumer, "quiet" if whole == "quiet" else "")
            if child.leaving or not what:
                continue
            logger.info("Consumer %s was asked to %s", child.consumer, "go quiet" if what == "quiet" else "stop")
            if what == "quiet" and not child.quarantine:
                child.shared_state.quiet()
            else:
                # Others pass on to a quarantine what must run alone: it cannot stay and take nothing.
                child.dismissed = not child.quarantine
                child.terminate()
        return bool(asked)

    def _fill_up(self, now: float) -> None:
        if self._quiet:
            return
        while not self._stopping and len(self._active()) + self._restarts.waiting(now) < self._processes:
            self._start(now)

    def _keep_quarantines(self, now: float) -> None:
        """Have processes for what must run alone while there is such, and tell all where it waits for them."""
        asked = [child for child in self._states if child.shared_state.wants_quarantine()]
        for _ in range(self._quarantines.missing(self._active_quarantines(), asked, now)):
            if not self._stopping and not self._quiet:
                self._start(now, quarantine=True)
        quarantines = self._active_quarantines()
        if not quarantines:
            self._quarantines.end_backlog()
        ready = any(self._is_ready(quarantine) for quarantine in quarantines)
        for child in self._states:
            child.shared_state.set_quarantine(self._quarantines.leader if ready else "")

    def _renew(self, now: float) -> None:
        if self._renewing is not None:
            old, new = self._renewing
            if new not in self._states:
                logger.error("The new consumer failed to start; keeping the old ones")
                self._to_renew, self._renewing = [], None
            elif old not in self._states:
                self._renewing = None
            elif self._is_ready(new) and not old.leaving:
                old.terminate()
        while self._renewing is None and self._to_renew:
            old = self._to_renew.pop(0)
            if old not in self._states or old.leaving:
                continue
            if old.quarantine:
                old.terminate()
            else:
                started = self._start(now)
                self._renewing = (old, started) if started is not None else None

    def _watch(self, child: WorkerProcess, now: float) -> None:
        if child.kill_if_overdue(now):
            logger.error("Consumer %s did not stop in time and was killed", child.consumer)
            return
        decision = child.watchdog.look(now)
        if decision in (Decision.KILL, Decision.KILL_LATE):
            child.was_late = decision is Decision.KILL_LATE
            self._tell_of(child, "killed: it does not respond", now)
            child.kill()
        elif decision is Decision.ASK_TO_LEAVE and not self._is_renewed(child) and not self._restarts.waiting(now):
            self._tell_of(child, "replaced: a handler cannot be interrupted", now)
            # Its successor first: its other queues need not wait until that has started.
            if self._quiet:
                child.terminate()
            else:
                self._to_renew.insert(0, child)

    def _tell_of(self, child: WorkerProcess, what: str, now: float) -> None:
        late = child.watchdog.late
        runs = [
            f"entry {item.receipt.entry.decode(errors='replace')!r} of queue {self._terms.queues[item.receipt.queue]}"
            f" for {now - item.since:.1f} s"
            for item in late
        ]
        logger.error("Consumer %s is %s. Past its timeout: %s", child.consumer, what, ", ".join(runs) or "nothing")
        self._name(child.consumer, {item.receipt for item in late})

    def _suspend(self, child: WorkerProcess, now: float) -> bool:
        """Give to others what lies ready in a process that does not respond; tell whether one responds again."""
        if child.watchdog.responds:
            back = child.suspended is not None
            child.suspended = None
            return back
        if child.suspended is None or now - child.suspended > SUSPEND_AGAIN:
            self._states.suspend(child, now)
            begun = {item.receipt for item in child.shared_state.running()} | set(child.shared_state.results())
            self._on_unresponsive(child.consumer, begun)
        return False

    def _let_go_of_the_dead(self, now: float) -> None:
        for child in self._states:
            code = child.process.poll()
            if code is None:
                continue
            is_done = self._terms.drain and code == 0 and not child.quarantine and not child.leaving
            if is_done or child.dismissed:
                self._processes -= 1
            elif not child.leaving and not self._stopping:
                logger.error("Consumer %s ended with %d; another takes its place", child.consumer, code)
                if not child.has_begun:
                    (self._quarantines.restarts if child.quarantine else self._restarts).ended(now, child.deaths + 1)
            # Whoever ends in order cuts its blocked reads short first.
            self._on_exit(
                child.consumer, evidence_of(child.shared_state, late=child.was_late, now=now, may_receive=code != 0)
            )
            if child.quarantine:
                self._quarantines.ended(child)
            self._states.remove(child)


def _has_fallen_quiet(child: WorkerProcess) -> bool:
    """Tell, once, that a consumer fetches no more."""
    before, child.quiet = child.quiet, child.shared_state.is_quiet()
    return child.quiet and not before
