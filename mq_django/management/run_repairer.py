"""Repair runs of workflows of which other programs or failovers have taken something.

Every supervisor does this: a project may start its runs in processes that no consumer resembles, from modules that none
imports. So this imports nothing of `mq_django.workflows`.
"""

import time

from mq_django.consumers.service import Service
from mq_django.core.logs import get_logger
from mq_django.errors import NotPermitted
from mq_django.inspector.run_check import check_runs
from mq_django.producers.workflow_run import repair
from mq_django.producers.workflow_steps import open_homes

logger = get_logger(__name__)

#: Seconds between two checks.
EVERY = 60.0
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
            claimed = [home.claim_check(0.9 * EVERY) for home in open_homes()]
        except NotPermitted:
            # A project without workflows need not grant their keys.
            return EVERY
        if any(claimed):
            self._check()
        return EVERY

    def _check(self) -> None:
        found = check_runs(seconds=SEARCH, old_ms=OLD_MS, with_ended=False, progressed=self._progressed)
        problems = [problem for problem in found.problems if problem.kind in REPAIRED]
        for problem in problems:
            logger.warning(
                "Repairing run %s: what another program or a failover took of step %s (%s)",
                problem.run,
                problem.step or "-",
                problem.kind,
            )
        left = [problem for problem in found.problems if problem.kind not in REPAIRED]
        for home in open_homes():
            home.note_stuck([problem for problem in left if problem.home == home.keys.home], 3 * EVERY)
        self.each(problems, repair, called=lambda problem: f"run {problem.run}")

    def _progressed(self) -> None:
        self.progressed = time.monotonic()
