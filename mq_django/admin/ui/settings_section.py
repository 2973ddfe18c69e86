"""The options of a queue, a group or a topic."""

import re
from datetime import timedelta
from typing import Any

from django.utils.translation import gettext as _

from mq_django.admin.ui import text
from mq_django.conf import DeliveryOptions, get_config
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.limits import Limit
from mq_django.core.options import History, options_of
from mq_django.core.partitions import public_name
from mq_django.core.retries import RetryPolicy


def settings_of(name: str) -> list[tuple[str, str]]:
    """Return the options of a queue, a group or a topic as rows of a table: name and value."""
    project = get_config()
    is_topic = GROUP_SEPARATOR not in name and public_name(name) in project.topics
    config: DeliveryOptions = project.topic(name) if is_topic else project.queue(name)
    # A group has only the options of deliveries.
    options = options_of(DeliveryOptions if GROUP_SEPARATOR in name else type(config)).values()
    rows = [(option, getattr(config, option.attribute)) for option in options]
    return [
        (option.name, _server(value) if option.name == "CONNECTION" else _value(value, option.is_bytes))
        for option, value in rows
        # Limits are shown in their own table.
        if not isinstance(value, Limit)
    ]


def _server(connection: str) -> str:
    """Return a connection without its login."""
    return re.sub(r"//.*@", "//", connection.partition("?")[0]) if connection else _("that of the project")


def _value(value: Any, is_bytes: bool = False) -> str:
    match value:
        case None:
            return _("none")
        case timedelta():
            return text.period(value)
        case History():
            limits = {"period": text.period(value.age), "most": text.number(value.count)}
            words = _("for %(period)s, of the latest %(most)s") % limits
            return _("%(words)s, with data") % {"words": words} if value.data else words
        case RetryPolicy():
            return _retries(value)
        case float():
            return text.percent(value)
        case bool() | str():
            return str(value)
        case tuple():
            # The weights of keys.
            return ", ".join(f"{key}: {weight:g}" for key, weight in value) or str(True)
    return text.size(value) if is_bytes else text.number(value)


def _retries(policy: RetryPolicy) -> str:
    words = _("after %(first)s, then %(factor)s times longer, at most %(longest)s") % {
        "first": _value(policy.delay),
        "factor": f"{policy.factor:g}",
        "longest": _value(policy.max_delay),
    }
    most = policy.max_attempts
    return words if most is None else _("%(retries)s; %(count)s attempts") % {"retries": words, "count": most}
