"""The verb `limit` of `mq`: limits that are changed at run time."""

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from mq_django import inspect
from mq_django.conf import get_config
from mq_django.core.limits import LIMITS, LimitChange, LimitName, Limits
from mq_django.inspector.message_views import moment_text
from mq_django.inspector.problem_sentences import changed_limit
from mq_django.management.terminal import Options, Terminal, VerbResult, table, user_name

#: The options, with their help.
OPTIONS: Mapping[LimitName, str] = {
    "rate": 'The rate of the queue, such as 10/s or 5/10s; "none": no limit.',
    "concurrency": 'The most deliveries at once of the queue, or "none".',
    "key_rate": 'The rate of each key, or "none".',
    "key_concurrency": 'The most deliveries at once of each key, or "none".',
}


def limit(options: Options, _: Terminal) -> VerbResult:
    """Change limits of a queue until they are changed back, or list those that are not as in the settings."""
    queue, values = options["queue"], {name: options[name] for name in LIMITS if options[name] is not None}
    reset = () if options["reset"] is None else options["reset"] or LIMITS
    if twice := values.keys() & {*reset}:
        raise CommandError(f"--reset contradicts --{min(twice).replace('_', '-')}.", returncode=2)
    values |= dict.fromkeys(reset, "settings")
    if values or options["reason"]:
        if queue is None:
            raise CommandError("Give a queue.", returncode=2)
        changed = inspect.set_limits(queue, **values, who=user_name(), reason=options["reason"])
        return VerbResult({"changed": changed}, ["changed" if changed else "was as in the settings"])
    views = inspect.queues([] if queue is None else [queue])
    rows = [
        {"queue": view.name, **changed_row(change, get_config().queue(view.name).limits)}
        for view in views
        for change in view.limit_changes.values()
    ]
    lines = table([{key: value for key, value in row.items() if key != "sentence"} for row in rows])
    if queue is not None and not get_config().queue(queue).limits.changeable:
        lines = [f"Queue {queue} has no limits in the settings that could be changed."]
    return VerbResult(rows, lines or ["All limits are as in the settings."])


def changed_row(change: LimitChange, limits: Limits) -> dict[str, Any]:
    """Return a changed limit of a queue with these limits in the settings."""
    return {
        "limit": change.limit,
        "value": change.value,
        "setting": str(getattr(limits, change.limit) or "none"),
        "who": change.who or None,
        "reason": change.reason or None,
        "since": moment_text(change.since_ms),
        "sentence": changed_limit(change, limits),
    }
