"""Pause, resume and purge a queue, after confirmation."""

from collections.abc import Sequence
from typing import get_args

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.confirm import CONFIRMED, confirm, report
from mq_django.admin.ui.page import OPERATE, PURGE, VIEW, Page, needs
from mq_django.inspector import actions
from mq_django.inspector.actions import Purgeable
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import quick_stats


@needs(VIEW, OPERATE)
def pause(page: Page, name: str) -> HttpResponse:
    """Pause a queue."""
    if CONFIRMED not in page.request.POST:
        view = quick_stats(name)
        sentence = _(
            "No new handler starts, and running handlers finish. %(ready)s ready and %(pending)s pending "
            "messages stay in the queue. Publishing continues."
        ) % {"ready": text.number(view.ready), "pending": text.number(view.pending)}
        title, button = _("Pause the queue?"), _("Yes, pause it")
        return _confirm(page, name, "pause", title, sentence, button, inputs=[reason_input()])
    reason = page.request.POST.get("reason", "")
    changed = actions.pause(name, who=page.request.user.get_username(), reason=reason)
    said = _("The queue is paused.") if changed else _("The queue was already paused.")
    return _done(page, name, said, paused_for(reason) if changed else "")


@needs(VIEW, OPERATE)
def resume(page: Page, name: str) -> HttpResponse:
    """Resume a queue."""
    if CONFIRMED not in page.request.POST:
        ready = quick_stats(name).ready
        sentence = ngettext(
            "%(count)s message is ready and will be handled.",
            "%(count)s messages are ready and will be handled.",
            ready,
        ) % {"count": text.number(ready)}
        return _confirm(page, name, "resume", _("Resume the queue?"), sentence, _("Yes, resume it"))
    changed = actions.resume(name)
    said = _("The queue was resumed.") if changed else _("The queue was not paused.")
    return _done(page, name, said, "Resumed the queue" if changed else "")


def reason_input() -> dict[str, str]:
    """Return the field for the reason of a pause, for a confirmation page."""
    shown = _("Optional. Shown with your name until the queue is resumed.")
    return {"name": "reason", "label": _("Reason"), "value": "", "maxlength": str(actions.MAX_REASON), "help": shown}


def paused_for(reason: str) -> str:
    """Return the text about a pause for the admin's log."""
    return f"Paused the queue: {reason.strip()[: actions.MAX_REASON]}" if reason.strip() else "Paused the queue"


def _confirm(
    page: Page,
    name: str,
    route: str,
    title: str,
    sentence: str,
    button: str,
    inputs: Sequence[dict[str, str]] = (),
) -> HttpResponse:
    return confirm(
        page,
        name,
        title,
        tab="queue",
        sentence=sentence,
        button=button,
        act_url=page.url(route, name),
        back_url=page.queue_url(name),
        inputs=inputs,
    )


def _done(page: Page, name: str, said: str, logged: str) -> HttpResponse:
    page.say(messages.SUCCESS if logged else messages.INFO, said)
    if logged:
        page.log(name, logged)
    return HttpResponseRedirect(page.queue_url(name))


@needs(VIEW, OPERATE, PURGE)
def purge(page: Page, name: str, place: str) -> HttpResponse:
    """Delete all messages of one place, as many per request as its time allows."""
    # It deletes all messages there, so a URL with a filter is rejected.
    filter_form.refuse_others(page, "count")
    where = _place(place)
    back_url = page.url("ready", name) if where == "ready" else page.url("waiting", name, where)
    count = _count(quick_stats(name), where)
    if page.request.method != "POST" or CONFIRMED not in page.request.POST:
        if not count:
            page.say(messages.INFO, _("There is nothing to purge."))
            return HttpResponseRedirect(back_url)
        return _confirm_purge(page, name, where, count, back_url)
    asked = page.request.POST.get("count", "")
    at_most = int(asked) if asked.isdecimal() and len(asked) < 16 else 0
    outcome = actions.purge(name, where, at_most=at_most)
    said = text.number(outcome.done)
    done = ngettext("%(count)s message was deleted.", "%(count)s messages were deleted.", outcome.done)
    report(page, name, outcome, done=done % {"count": said}, logged=f"Purged {said} {where} messages")
    if not outcome.more:
        return HttpResponseRedirect(back_url)
    page.say(messages.WARNING, _("More messages are left than one request can delete. Continue?"))
    return HttpResponseRedirect(page.url("purge", name, where))


def _confirm_purge(page: Page, name: str, where: Purgeable, count: int, back_url: str) -> HttpResponse:
    titles = {
        "ready": ngettext("Purge %(count)s ready message?", "Purge %(count)s ready messages?", count),
        "delayed": ngettext("Purge %(count)s delayed message?", "Purge %(count)s delayed messages?", count),
        "unhandled": ngettext("Purge %(count)s unhandled message?", "Purge %(count)s unhandled messages?", count),
        "parked": ngettext("Purge %(count)s parked message?", "Purge %(count)s parked messages?", count),
    }
    return confirm(
        page,
        name,
        titles[where] % {"count": text.number(count)},
        tab=where,
        sentence=_("Deleted messages cannot be restored and are never handled. Pending messages are not deleted."),
        button=_("Yes, delete it") if count == 1 else _("Yes, delete them"),
        act_url=page.url("purge", name, where),
        back_url=back_url,
        fields=[("count", str(count))],
        dangerous=True,
    )


def _place(word: str) -> Purgeable:
    for place in get_args(Purgeable):
        if word == place:
            found: Purgeable = place
            return found
    raise Http404


def _count(view: QueueView, where: Purgeable) -> int:
    return {"ready": view.ready, "delayed": view.delayed, "unhandled": view.unhandled, "parked": view.parked}[where]
