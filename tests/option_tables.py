"""The lists of options in docs/settings.md, made of what the configs declare. `make docs` writes them."""

import re
from dataclasses import MISSING, fields
from datetime import timedelta
from pathlib import Path
from textwrap import fill
from typing import Any

from mq_django.conf import Config, QueueConfig, RsmqConfig, TopicConfig
from mq_django.core.limits import Limit
from mq_django.core.options import Option, options_of
from mq_django.core.project import Thresholds

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"

#: By their names in the comments that mark the lists.
CONFIGS = {"project": Config, "queue": QueueConfig, "topic": TopicConfig, "rsmq": RsmqConfig, "thresholds": Thresholds}

TIMES = [(86400, "days"), (60, "minutes"), (1, "s")]


def listed(config: type) -> str:
    """Return the options of a config as Markdown, without those that are in the list of a queue's options."""
    described = {} if config in (Config, QueueConfig) else options_of(QueueConfig)
    return "".join(
        fill(
            f"- `{name}` ({option.shown or words(default_of(config, option), is_bytes=option.is_bytes)}): "
            f"{option.help_text}",
            width=120,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
        for name, option in options_of(config).items()
        if name not in described
    )


def default_of(config: type, option: Option) -> Any:
    (field,) = (field for field in fields(config) if field.name == option.attribute)
    return field.default if field.default_factory is MISSING else field.default_factory()


def words(value: Any, *, is_bytes: bool = False) -> str:
    """Return a default as Markdown."""
    if value is None or value == Limit():
        return "none"
    if isinstance(value, timedelta):
        size, unit = next(entry for entry in TIMES if not value.total_seconds() % entry[0])
        count = value // timedelta(seconds=size)
        return f"{count} {unit.removesuffix('s') if count == 1 and unit != 's' else unit}"
    return f"{value // 1024} KiB" if is_bytes else "`" + repr(value).replace("'", '"') + "`"


def renewed(page: str) -> str:
    """Return the page with its lists as they have to be."""
    return re.sub(
        r"(<!-- options: (\w+) -->\n)(?:(?:- |  ).*\n)*", lambda found: found[1] + listed(CONFIGS[found[2]]), page
    )


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
