"""The service of a supervisor that sends the signals of problems."""

from django.utils.module_loading import import_string

from mq_django.consumers.service import Service
from mq_django.signals import problem_began, problem_ended

#: Loaded when it is needed: consumers do not need the inspector.
WATCHER = "mq_django.observability.problem_watch.ProblemWatcher"


def problem_watchers() -> list[Service]:
    """Return the service that watches for problems; nothing if the project has no receivers."""
    return [import_string(WATCHER)()] if problem_began.receivers or problem_ended.receivers else []
