"""What the settings say about a queue."""

from datetime import timedelta

from django.utils.translation import gettext as _

from mq_django.admin.ui import text
from mq_django.conf import get_config


def settings_of(name: str) -> list[tuple[str, str]]:
    """Return the options of a queue, as rows of a table."""
    config = get_config().queue(name)

    def time(value: timedelta | None) -> str:
        return _("none") if value is None else text.duration(round(value.total_seconds() * 1000))

    retry = config.retry
    return [
        (_("Visibility timeout"), time(config.visibility_timeout)),
        (_("Attempts"), text.number(retry.max_attempts or config.max_attempts)),
        (
            _("Retries"),
            _("after %(first)s, then %(factor)s times longer, at most %(longest)s")
            % {"first": time(retry.delay), "factor": f"{retry.factor:g}", "longest": time(retry.max_delay)},
        ),
        (_("Handler timeout"), time(config.timeout)),
        (_("Largest data"), text.size(config.max_size)),
        (_("Most messages"), _("no limit") if config.max_depth is None else text.number(config.max_depth)),
        (_("Results are kept for"), time(config.result_ttl)),
    ]
