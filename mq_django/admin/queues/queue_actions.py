"""Pause and resume a queue, after confirmation."""

from collections.abc import Sequence

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui import text
from mq_django.admin.ui.confirm import CONFIRMED, confirm
from mq_django.admin.ui.page import OPERATE, VIEW, Page, needs
from mq_django.inspector import actions
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
