"""Handlers with effects in the database."""

import os
import signal
import time
from pathlib import Path

from django.db import transaction

from mq_django import exactly_once, handler
from tests.inbox.effects import Effects

effects = Effects("default")


@handler("default", "add")
@exactly_once
def add(message):
    effects.add(message)
    time.sleep(message.data or 0)


@handler("default", "die")
@exactly_once
def die_after_commit(message):
    """Die when the transaction is committed, and before the message is settled."""
    effects.add(message)
    transaction.on_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))


@handler("default", "die in it")
@exactly_once
def die_before_commit(message):
    effects.add(message)
    os.kill(os.getpid(), signal.SIGKILL)


@handler("default", "wait")
@exactly_once
def wait(message):
    """Wait until a file exists; another one says that it waits."""
    Path(message.data, f"begun-{os.getpid()}").touch()
    while not Path(message.data, "go").exists():
        time.sleep(0.01)
    effects.add(message)
