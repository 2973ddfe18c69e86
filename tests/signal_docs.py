"""What mq_django/signals.py says about the arguments of each signal."""

import re
from pathlib import Path

from django.dispatch import Signal

from mq_django import signals

TEXT = Path(signals.__file__).read_text(encoding="utf-8")


def arguments_of(signal: Signal) -> set[str]:
    (name,) = (name for name, value in vars(signals).items() if value is signal)
    comment = re.search(rf"((?:#:.*\n)+){name} = Signal\(\)", TEXT)[1].replace("\n#:", "")
    return set(re.findall(r"(\w+) \(", comment.partition("Arguments:")[2])) | {"sender", "signal"}
