"""Connect the receivers, and look at queues more often than a project does."""

from django.apps import AppConfig

from mq_django.observability import problem_watch
from mq_django.signals import problem_began, problem_ended
from tests.consumers.project.history import note


def began(sender, queue, problem, **kwargs):
    note("began", queue=queue, problem=problem.kind, sentence=problem.sentence)
    raise SystemExit("a receiver that fails")


def ended(sender, queue, problem, lasted, **kwargs):
    note("ended", queue=queue, problem=problem.kind, seconds=lasted.total_seconds())


class WatchingConfig(AppConfig):
    name = "tests.observability.watching"

    def ready(self):
        problem_watch.EVERY = 0.5
        problem_watch.QUIET_MS = 2000
        problem_began.connect(began)
        problem_ended.connect(ended)
