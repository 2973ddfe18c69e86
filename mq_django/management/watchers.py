"""The services of a supervisor that read as people do: what consumers do not need."""

import sys

from django.utils.module_loading import import_string

from mq_django.consumers.service import Service
from mq_django.signals import problem_began, problem_ended

#: Loaded when it is needed: consumers do not need the inspector.
WATCHER = "mq_django.observability.problem_watch.ProblemWatcher"
REPAIRER = "mq_django.workflows.definitions.RunRepairer"


def watchers() -> list[Service]:
    """Return the services that the project needs.

    One watches for problems, if the project has receivers. One repairs runs, if the project has workflows.
    """
    needed = {
        WATCHER: bool(problem_began.receivers or problem_ended.receivers),
        REPAIRER: "mq_django.workflows" in sys.modules,
    }
    return [import_string(path)() for path, is_needed in needed.items() if is_needed]
