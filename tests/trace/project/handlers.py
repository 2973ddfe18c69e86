"""Handlers that say when they begin and end, and one that writes down what was recorded."""

import os
from pathlib import Path

from mq_django import Message, handler
from tests.trace.recorder import BEGIN, END, Recorder

FOLDER = os.environ.get("MQ_TRACE_FOLDER")

# Imported before the threads of the process start, so that all of them are recorded.
recorder = Recorder()
if FOLDER:
    recorder.watch_threads()


@handler("plain", "nothing")
def nothing(message: Message) -> None:
    """Do nothing."""
    recorder.mark(BEGIN, message.id)
    recorder.mark(END, message.id)


@handler("plain", "fail")
@handler("once", "fail")
def fail(message: Message) -> None:
    """Fail."""
    recorder.mark(BEGIN, message.id)
    recorder.mark(END, message.id)
    raise ValueError("on purpose")


@handler("plain", "save")
def save(message: Message) -> None:
    """Write down what this process recorded."""
    recorder.save(Path(FOLDER or "") / message.data)
