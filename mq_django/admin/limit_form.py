"""The form that changes the limits of a queue at run time, and changes them back."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.utils.translation import gettext as _

from mq_django.admin.ui import filter_form
from mq_django.admin.ui.page import OPERATE, VIEW, Page, confirm, needs
from mq_django.conf import get_config
from mq_django.core.limits import Limits
from mq_django.errors import InvalidArguments
from mq_django.inspector import limits
from mq_django.inspector.action_log import to_undo
from mq_django.inspector.actions import MAX_REASON
from mq_django.inspector.problem_sentences import limit_label
from mq_django.inspector.queues import quick_stats

#: Before the name of a field: its value when the form was shown. Only what the user has changed is changed.
SEEN = "seen_"


def limits_of_whole(name: str) -> Limits:
    """Return the limits that the settings have for a queue, or for the queue of a partition."""
    return get_config().queue(get_config().queue(name).public_name).limits


@needs(VIEW, OPERATE)
def change(page: Page, name: str) -> HttpResponse:
    """Change limits of a queue by a form, which may begin with what an entry of the activity has changed."""
    url, names, entry = page.queue_url(name), limits_of_whole(name).changeable, filter_form.given(page, "entry") or ""
    known = quick_stats(name).limit_changes
    if not names:
        return page.leave(url, _("The settings give this queue no limit that could be changed."))
    now = {**dict.fromkeys(names, limits.SETTINGS), **{each.limit: each.value for each in known.values()}}
    action = to_undo(entry) if entry and not page.is_confirmed else None
    if entry and action is None and not page.is_confirmed:
        return page.leave(url, _("These limits were changed anew since."))
    if not page.is_confirmed:
        return _form(page, name, now, {**now, **({} if action is None else action.undo["before"])})
    posted = {field: value.strip() for field, value in page.request.POST.items() if isinstance(value, str)}
    values: Any = {
        each: posted.get(each) or limits.SETTINGS for each in names if posted.get(each) != posted.get(SEEN + each)
    }
    reason = posted.get("reason", "")
    try:
        if not values or not limits.set_limits(name, **values, who=page.request.user.get_username(), reason=reason):
            return page.leave(url, _("No limit was changed."), messages.INFO)
    except InvalidArguments:
        page.say(messages.ERROR, _("A rate is such as 10/s, 100/m or 5/10s, a concurrency a number from 1."))
        return _form(page, name, {each: posted.get(SEEN + each, "") for each in names}, posted)
    said = ", ".join(f"{each} {value}" for each, value in values.items())
    page.log(name, f"Changed limits: {said}{reason and f': {reason[:MAX_REASON]}'}")
    return page.leave(url, _("The limits are changed."), messages.SUCCESS)


def _form(page: Page, name: str, seen: dict[Any, str], asked: dict[Any, str]) -> HttpResponse:
    configured = limits_of_whole(name)
    inputs: list[dict[str, Any]] = [
        {
            "name": each,
            "label": limit_label(each),
            "value": asked.get(each, ""),
            "maxlength": "20",
            "help": _("In the settings: %(value)s. Or “settings”: as there, or “none”: no limit.")
            % {"value": getattr(configured, each)},
        }
        for each in configured.changeable
    ]
    reason = {"name": "reason", "label": _("Reason"), "value": asked.get("reason", ""), "maxlength": str(MAX_REASON)}
    return confirm(
        page,
        name,
        _("Change the limits?"),
        _("They hold from the next fetch on, until they are changed back. Running handlers are not interrupted."),
        _("Yes, change them"),
        fields=[(SEEN + each, seen.get(each, "")) for each in configured.changeable],
        inputs=[*inputs, {**reason, "help": _("Optional. Shown with your name until they are changed back.")}],
    )
