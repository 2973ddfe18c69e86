"""Lets a service of the first supervisor stand still, as a receiver of a signal may do that waits for ever."""

import os
import sys
import time
from pathlib import Path

from django.apps import AppConfig

from mq_django.consumers.supervisor import supervisor
from mq_django.consumers.supervisor.chores import Trimmer


class Stuck(AppConfig):
    """Blocks the trimmer of the first supervisor from the moment at which a file named in the environment is there."""

    name = "tests.consumers.project.stuck"
    label = "stuck"

    def ready(self) -> None:
        """Block it, if this is the first supervisor."""
        begin = Path(os.environ["MQ_TEST_STUCK"])
        if "--orders" in sys.argv or begin.exists():
            return

        def stand_still(self: Trimmer) -> float:
            if begin.exists():
                supervisor.STUCK, supervisor.LAST_ROUND = 1.0, 0.2
                time.sleep(3600)
            return 0.1

        Trimmer.run_once = stand_still  # type: ignore[method-assign]
