"""Starts planned runs of workflows under faults, as a web process would, and operates them until each has ended."""

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import redis

from mq_django import queues
from mq_django.conf import get_config
from mq_django.core.ids import message_id_of
from mq_django.errors import MQError, StoreError
from mq_django.inspector.run_check import check_runs
from mq_django.producers.workflow_run import repair
from mq_django.producers.workflow_steps import open_home
from mq_django.stores.dead_letters import DeadLetters, open_dead_letters
from mq_django.stores.workflow_home import StepState
from mq_django.transport.connections import open_transport
from mq_django.workflows import get_run, workflow
from tests.chaos.flow_places import Listed, listed
from tests.chaos.flows import Plan
from tests.chaos.history import History
from tests.chaos.settings import FLOW_QUEUE, FLOW_QUEUE_BESIDE
from tests.chaos.tasks import add_steps, mending, tell_failure, tell_finish, tell_success

QUEUES = (FLOW_QUEUE, FLOW_QUEUE_BESIDE)
#: Seconds between two looks at all runs.
LOOK = 0.4
#: One of so many looks is also at runs that have ended: a step that is redriven lets a run continue.
AGAIN = 5
#: One of so many looks repairs runs of which other programs have deleted messages, when nothing was heard of them for
#: so long, in ms.
CHECKS, OLD_MS = 5, 4000


@dataclass(slots=True)
class _Known:
    """What the operator knows about a run."""

    plan: Plan
    #: What it has ended as, when that needs no more.
    is_over: bool = False
    is_cancelled: bool = False
    #: Seconds on the monotonic clock, when it may be cancelled.
    cancel_at: float = 0.0


@dataclass
class Operator:
    """Two threads: one starts runs at a steady rate, and the other one looks at all of them."""

    history: History
    folder: Path
    rng: random.Random
    plans: Sequence[Plan]
    #: Runs a second.
    rate: float
    client: Callable[[], redis.Redis]
    _runs: dict[str, _Known] = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Begin."""
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._start_runs, self._operate)]
        for thread in self._threads:
            thread.start()

    @property
    def is_starting(self) -> bool:
        """Return whether runs are still to be started."""
        return self._threads[0].is_alive()

    def is_done(self) -> bool:
        """Return whether each run has ended, and stays so."""
        known = list(self._runs.values())
        return not self.is_starting and bool(known) and all(run.is_over for run in known)

    def stop(self) -> None:
        """End both threads."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)

    def _start_runs(self) -> None:
        due = time.monotonic()
        for plan in self.plans:
            self._start_run(plan)
            due = max(due + 1 / self.rate, time.monotonic() - 1.0)
            if self._stopping.wait(max(0.0, due - time.monotonic())):
                break

    def _start_run(self, plan: Plan) -> None:
        definition = workflow(
            plan.key, policy=plan.policy, on_success=tell_success, on_failure=tell_failure, on_finish=tell_finish
        )
        self.history.note("plan", plan=plan.as_dict())
        try:
            with definition as flow:
                add_steps(flow, plan.key, plan.steps)
        except MQError as error:
            # It may have begun.
            self.history.note("run-unknown", key=plan.key, error=repr(error))
        else:
            assert definition.run is not None
            self.history.note("run", key=plan.key, run_id=definition.run.id)

    def _operate(self) -> None:
        plans = {plan.key: plan for plan in self.plans}
        number = 0
        while not self._stopping.wait(LOOK):
            number += 1
            # Redis may be away.
            with suppress(redis.RedisError), self.client() as client:
                over = {run_id for run_id, known in self._runs.items() if known.is_over}
                found = listed(client, over if number % AGAIN else ())
                for run in found:
                    self._see(run, plans)
                if self.is_starting:
                    self._cancel_a_step(found)
                if number % CHECKS == 0:
                    self._repair()

    def _see(self, run: Listed, plans: dict[str, Plan]) -> None:
        plan = plans.get(run.name)
        if plan is None or run.state == "building":
            return
        known = self._runs.get(run.id)
        if known is None:
            at = time.monotonic() + self.rng.uniform(0.0, 1.0)
            known = self._runs[run.id] = _Known(plan, cancel_at=at)
        # What it cannot do now, it does with the next look.
        with suppress(StoreError):
            known.is_over = self._is_over(run, known)

    def _is_over(self, run: Listed, known: _Known) -> bool:
        """Do what is to be done about a run, and return whether that is nothing any more."""
        fate = known.plan.fate
        match run.state:
            case "succeeded":
                return run.flying == 0
            case "running":
                if fate in ("cancel", "resume") and not known.is_cancelled and time.monotonic() >= known.cancel_at:
                    self.history.note("cancel", run_id=run.id)
                    get_run(run.id).cancel()
                    known.is_cancelled = True
            case "cancelled":
                if fate != "resume":
                    return run.flying == 0
                self.history.note("retry", run_id=run.id)
                get_run(run.id).retry()
            case "failed":
                if fate == "fail" and self._failed_as_planned(run, known.plan):
                    return run.flying == 0
                self._mend(run, known.plan)
        return False

    def _failed_as_planned(self, run: Listed, plan: Plan) -> bool:
        """Return whether no other steps have failed than those that always do: others were purged or cancelled."""
        ids = self._failed(run.id)
        letters = [letter for queue in QUEUES for letter in self._letters(queue).find(ids) if letter] if ids else []
        return 0 < len(ids) == len(letters) <= sum(step.fails for step in plan.steps)

    def _failed(self, run_id: str) -> list[str]:
        return [message_id_of(run_id, step.number, step.round) for step in self._steps(run_id) if step.state == "F"]

    @staticmethod
    def _letters(queue: str) -> DeadLetters:
        return open_dead_letters(get_config().queue(queue), open_transport("produce"))

    def _mend(self, run: Listed, plan: Plan) -> None:
        is_mended = plan.fate != "fail"
        if is_mended:
            mending(self.folder, plan.key).touch()
        # What was purged has no dead letter.
        if not (is_mended and plan.redrives and self._redrive(run.id)):
            self.history.note("retry", run_id=run.id)
            get_run(run.id).retry()

    def _redrive(self, run_id: str) -> bool:
        """Redrive the dead letters of failed steps, and return whether there was any."""
        ids, words = self._failed(run_id), list[str]()
        for queue in QUEUES:
            letters = self._letters(queue)
            entries = [entry for entry in letters.find(ids) if entry] if ids else []
            if entries:
                self.history.note("redrive", entries=entries)
                words += letters.redrive(entries)
        return "REDRIVEN" in words

    @staticmethod
    def _steps(run_id: str) -> Iterable[StepState]:
        return open_home(run_id).records(run_id)[1]

    def _repair(self) -> None:
        """Do what `mq workflows --check --fix` does."""
        with suppress(StoreError):
            for problem in check_runs(seconds=5.0, old_ms=OLD_MS).problems:
                self.history.note("repair", kind=problem.kind, run_id=problem.run, message=problem.message_id)
                repair(problem)

    def _cancel_a_step(self, found: Sequence[Listed]) -> None:
        running = [run for run in found if run.state == "running" and run.flying]
        if not running:
            return
        run = self.rng.choice(running)
        with suppress(MQError):
            started = [step for step in self._steps(run.id) if step.state == "S"]
            if started:
                step = self.rng.choice(started)
                message = message_id_of(run.id, step.number, step.round)
                self.history.note("cancel-step", ids=[message])
                for queue in QUEUES:
                    queues[queue].cancel(message, running=True)
