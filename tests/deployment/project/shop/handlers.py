"""One handler, which appends what it gets to a file."""

import os
from pathlib import Path

from mq_django import Message, handler


@handler("emails", "note")
@handler("default", "note")
def note(message: Message) -> None:
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(f"{message.data}\n")
