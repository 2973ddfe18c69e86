"""The page between a button and what it does, and the words when it is done."""

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from mq_django.admin.ui.page import Page, sentence_of
from mq_django.admin.ui.tabs import tabs
from mq_django.admin.ui.text import number
from mq_django.core.visible import truncate
from mq_django.inspector.actions import Outcome

#: The form's field that says that somebody has read what will happen.
CONFIRMED = "confirmed"

#: The form's field that names what was chosen, as the admin's own actions call it.
CHOSEN = "_selected_action"

#: What was chosen is listed up to so many.
MAX_LISTED = 20


def chosen(page: Page) -> list[str]:
    """Return what a form chose, each once."""
    return list(dict.fromkeys(page.request.POST.getlist(CHOSEN)))


def confirm(
    page: Page,
    queue: str,
    title: str,
    *,
    tab: str,
    sentence: str,
    button: str,
    act_url: str,
    back_url: str,
    fields: Sequence[tuple[str, str]] = (),
    listed: Sequence[SafeString] = (),
    unlisted: int = 0,
    dangerous: bool = False,
    inputs: Sequence[dict[str, str]] = (),
) -> HttpResponse:
    """Ask whether something is to be done, and say to how many."""
    context: dict[str, Any] = {
        "queue": queue,
        "tabs": tabs(page, queue, tab),
        "sentence": sentence,
        "button": button,
        "act_url": act_url,
        "back_url": back_url,
        "fields": [*fields, (CONFIRMED, "yes")],
        "listed": listed,
        "unlisted": number(unlisted) if unlisted else "",
        "dangerous": dangerous,
        "inputs": inputs,
    }
    return page.render("confirm", title, **context)


def report(page: Page, queue: str, outcome: Outcome, *, done: str, logged: str) -> None:
    """Tell the user and the admin's log what was done, and what was not and why."""
    if outcome.done:
        page.say(messages.SUCCESS, done)
    for count, sentence in (
        (outcome.missing, _("%(count)s were gone before: somebody else was quicker.")),
        (outcome.refused, _("%(count)s cannot be redriven, because they are no messages; they stay.")),
    ):
        if count:
            page.say(messages.WARNING, sentence % {"count": number(count)})
    if outcome.error is not None:
        more = _("What was done until then is done; it is safe to do it again.")
        page.say(messages.ERROR, f"{sentence_of(outcome.error)} {more}")
    if outcome.done or outcome.error is not None:
        # Redis may have done the last batch and lost its answer, and the log must not say less than was done.
        doubt = " (interrupted; up to one more batch may have been done)" if outcome.error is not None else ""
        page.log(queue, truncate(logged, 1000) + doubt)
