"""Lets a service of the first supervisor stand still, as a receiver of a signal may do that waits for ever."""

import os
import sys
import time
from pathlib import Path

from django.apps import AppConfig

from mq_django.consumers.supervisor import supervisor
from mq_django.consumers.supervisor.trimmer import Trimmer


class Stuck(AppConfig):
    """Blocks the trimmer once."""

    name = "tests.consumers.project.stuck"
    label = "stuck"

    def ready(self) -> None:
        """Block it, if this is the first supervisor."""
        done = Path(os.environ["MQ_TEST_STUCK"])
        if "--orders" in sys.argv or done.exists():
            return
        done.touch()
        supervisor.STUCK = 3.0
        Trimmer.run_once = lambda self: time.sleep(3600) or 1.0  # type: ignore[method-assign,func-returns-value]
