"""A message as a table row and as a list of labels and values."""

from collections.abc import Sequence
from typing import Any

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from mq_django.admin.ui import text
from mq_django.core.attempts import FAILED, Attempt
from mq_django.core.filters import error_class, is_exception
from mq_django.core.redaction import redact_forms
from mq_django.inspector.message_views import MessageView
from mq_django.stores.handled import Ending

#: A label and its value; empty values are left out.
Fact = tuple[str, SafeString | str]


def shown_error(error: str, *, can_see_data: bool, limit: int = text.LONGEST) -> SafeString | str:
    """Return an error as HTML. Users who may not see data get only its class, because its text may contain data."""
    if can_see_data:
        return text.visible(error, limit=limit, lines=limit == text.LONGEST)
    name = error_class(error)
    return text.visible(name) if is_exception(name) else ""


def ending_words(ending: Ending) -> str:
    """Return what became of a message, as a word for a table."""
    return {
        "handled": _("handled"),
        "expired": _("expired"),
        "buried": _("became a dead letter"),
        "cancelled": _("cancelled"),
    }[ending]


def preview(view: MessageView, *, can_see_data: bool) -> SafeString | str:
    """Return the beginning of a message's data for a row of a table."""
    if not can_see_data:
        return _("hidden")
    if view.has_data:
        return text.compact(view.data)
    return _("could not be decoded") if view.problem else _("long: %(size)s") % {"size": text.size(view.size)}


def listed(view: MessageView, *, can_see_data: bool) -> dict[str, Any]:
    """Return the cells of a message's table row."""
    return {
        "id": text.visible(view.id, limit=60),
        "name": text.visible(view.name, limit=60),
        "attempt": view.attempt,
        "key": text.visible(redact_forms(view.key), limit=60) if view.key is not None and can_see_data else "",
        "data": preview(view, can_see_data=can_see_data),
    }


def facts(
    view: MessageView, *, can_see_data: bool, first: Sequence[Fact] = (), last: Sequence[Fact] = ()
) -> dict[str, Any]:
    """Return the context of a message's page. Key, headers and data only for users who may see data."""
    found = [
        (_("Id"), text.visible(view.id)),
        (_("Name"), text.visible(view.name) if view.name else ""),
        *first,
        (_("Published"), text.moment(view.published_ms)),
        *last,
        (_("Expires"), text.moment(view.expires_ms)),
        (_("Priority"), str(view.priority) if view.priority else ""),
    ]
    if can_see_data:
        found += [
            (_("Key"), text.visible(redact_forms(view.key)) if view.key is not None else ""),
            (_("Unique key"), text.visible(view.unique) if view.unique is not None else ""),
            *((text.visible(name), text.visible(value)) for name, value in sorted(view.headers.items())),
        ]
    found.append((_("Size"), text.size(view.size)))
    return {
        "facts": [(label, value) for label, value in found if value],
        "data": text.pretty(view.data) if view.has_data and can_see_data else "",
        "too_long": not view.has_data and not view.problem,
        "message_error": shown_error(view.problem, can_see_data=can_see_data) if view.problem else "",
        "attempts": [_attempt(attempt, can_see_data=can_see_data) for attempt in view.attempts],
    }


def _attempt(attempt: Attempt, *, can_see_data: bool) -> dict[str, Any]:
    started, finished, is_end = attempt.started_ms, attempt.finished_ms, attempt.status == FAILED
    took = None if started is None or finished is None else max(0, finished - started) / 1000
    return {
        "number": text.number(attempt.number),
        "ending": _("gave up") if is_end else _("failed, will be retried"),
        "is_end": is_end,
        "consumer": text.visible(attempt.consumer, limit=100),
        "ended": text.moment(finished),
        "took": text.seconds(took),
        "error": shown_error(attempt.error, can_see_data=can_see_data),
        "traceback": text.visible(attempt.traceback, lines=True) if attempt.traceback and can_see_data else "",
    }
