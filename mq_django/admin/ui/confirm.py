"""The confirmation page of an action, and its result messages."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from mq_django.admin.ui.page import Page, sections, sentence_of, tabs
from mq_django.admin.ui.text import number
from mq_django.core.texts import truncate
from mq_django.inspector.actions import Outcome

#: The form field of a confirmed action.
CONFIRMED = "confirmed"

#: The form field with the selected items, as in the admin's own actions.
CHOSEN = "_selected_action"

#: The most selected items that are listed.
MAX_LISTED = 20


def chosen(page: Page) -> list[str]:
    """Return the selected items of a form without duplicates."""
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
    inputs: Sequence[Mapping[str, Any]] = (),
    look: tuple[str, str] | None = None,
) -> HttpResponse:
    """Render the confirmation page of an action on a queue, or on all queues if `queue` is empty.

    `look` is the label and the URL of a page to see before.
    """
    context: dict[str, Any] = {
        "queue": queue,
        "tabs": tabs(page, queue, tab) if queue else sections(page, tab),
        "sentence": sentence,
        "button": button,
        "act_url": act_url,
        "back_url": back_url,
        "fields": [*fields, (CONFIRMED, "yes")],
        "listed": listed,
        "unlisted": number(unlisted) if unlisted else "",
        "dangerous": dangerous,
        "inputs": inputs,
        "look": look,
    }
    return page.render("confirm", title, **context)


def report(page: Page, queue: str, outcome: Outcome, *, done: str, logged: str, refused: str = "") -> None:
    """Show the result of an action to the user, and write it to the admin's log.

    `refused` is the sentence about messages that were refused, if it is not that they cannot be redriven.
    """
    if outcome.done:
        page.say(messages.SUCCESS, done)
    for count, sentence in (
        (outcome.missing, _("%(count)s no longer existed.")),
        (outcome.refused, refused or _("%(count)s are not valid messages and cannot be redriven.")),
    ):
        if count:
            page.say(messages.WARNING, sentence % {"count": number(count)})
    if outcome.error is not None:
        more = _("Changes made so far stay. You can safely try again.")
        page.say(messages.ERROR, f"{sentence_of(outcome.error)} {more}")
    if outcome.done or outcome.error is not None:
        # Redis may have executed the last batch although its reply was lost, so the log mentions it.
        doubt = " (interrupted; up to one more batch may have been done)" if outcome.error is not None else ""
        page.log(queue, truncate(logged, 1000) + doubt)
