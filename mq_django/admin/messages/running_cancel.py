"""Cancel a message that is ready or being handled."""

from typing import get_args

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from mq_django.admin.ui import text
from mq_django.admin.ui.confirm import CONFIRMED, confirm
from mq_django.admin.ui.page import OPERATE, VIEW, Page, needs, sentence_of
from mq_django.core.visible import escape
from mq_django.inspector import actions, entries
from mq_django.inspector.message_views import EntrySource, EntryView

#: The form field that asks for the replacement of the process.
FORCE = "force"


def source_of(word: str) -> EntrySource:
    """Return the source of a message in a URL, or raise Http404."""
    for source in get_args(EntrySource):
        if word == source:
            found: EntrySource = source
            return found
    raise Http404


@needs(VIEW, OPERATE)
def cancel_running(page: Page, name: str, source: str, entry: str) -> HttpResponse:
    """Cancel a message that is ready or being handled, after confirmation."""
    view = entries.get(name, source_of(source), text.from_url(entry)) if actions.can_cancel_running(name) else None
    if view is None:
        page.say(messages.WARNING, _("The message is no longer here: it was handled, retried or deleted."))
        return HttpResponseRedirect(page.url("ready", name))
    back_url = page.url("entry", name, source, entry)
    if page.request.method != "POST" or CONFIRMED not in page.request.POST:
        return _confirm(page, name, view, back_url)
    message_id, force = view.message.id, page.request.POST.get(FORCE) == "yes"
    outcome = actions.cancel(name, [message_id.encode()], running=True, force=force)
    if outcome.error is not None:
        page.say(messages.ERROR, sentence_of(outcome.error))
        return HttpResponseRedirect(back_url)
    page.say(
        messages.SUCCESS,
        _("Its consumer was asked to cancel the message. It is told within a second.")
        if outcome.asked
        else _("The message was cancelled."),
    )
    how = ", and to replace its process if needed" if force else ""
    page.log(name, f"Asked to cancel the running message {escape(message_id)[:200]}{how}")
    return HttpResponseRedirect(page.url("pending" if view.consumer else "ready", name))


def _confirm(page: Page, name: str, view: EntryView, back_url: str) -> HttpResponse:
    force = {
        "name": FORCE,
        "is_box": True,
        "label": _("Replace its process if it goes on"),
        "help": _(
            "For a handler that ignores the interrupt, or waits where Python cannot interrupt it. Other messages of "
            "the process may finish within the grace time, or return to the queue without a counted attempt."
        ),
    }
    stacks_url = page.url("stacks", text.to_url(view.consumer.encode(errors="replace")))
    return confirm(
        page,
        name,
        _("Cancel this message?"),
        tab="pending" if view.consumer else "ready",
        sentence=_(
            "If its handler runs, it is interrupted where it is: its transaction is rolled back, and what it has done "
            "outside of it stays. If it has not started, it never will. The message is deleted."
        ),
        button=_("Yes, cancel it"),
        act_url=page.request.path,
        back_url=back_url,
        listed=[text.visible(f"{view.message.name} {view.message.id}", limit=200)],
        dangerous=True,
        inputs=[force] if view.consumer else [],
        look=(_("See where its handler is"), stacks_url) if view.consumer else None,
    )
