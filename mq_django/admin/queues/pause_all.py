"""Pause and resume all queues, after confirmation."""

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django import inspector
from mq_django.admin.queues.queue_actions import paused_for, reason_input
from mq_django.admin.ui import text
from mq_django.admin.ui.confirm import CONFIRMED, MAX_LISTED, confirm
from mq_django.admin.ui.page import OPERATE, VIEW, Page, needs, sentence_of
from mq_django.inspector import actions
from mq_django.inspector.actions import Switched
from mq_django.inspector.problem_sentences import pause_details
from mq_django.inspector.queue_view import QueueView


@needs(VIEW, OPERATE)
def pause_all(page: Page) -> HttpResponse:
    """Pause all queues and groups of topics."""
    if page.request.method != "POST" or CONFIRMED not in page.request.POST:
        return _ask_to_pause(page)
    reason = page.request.POST.get("reason", "")
    found = actions.pause_all(who=page.request.user.get_username(), reason=reason)
    count = len(found.changed)
    done = ngettext("%(count)s queue was paused.", "%(count)s queues were paused.", count)
    return _done(page, found, done, paused_for(reason))


@needs(VIEW, OPERATE)
def resume_all(page: Page) -> HttpResponse:
    """Resume all queues and groups of topics that are paused."""
    if page.request.method != "POST" or CONFIRMED not in page.request.POST:
        return _ask_to_resume(page)
    found = actions.resume_all()
    count = len(found.changed)
    done = ngettext("%(count)s queue was resumed.", "%(count)s queues were resumed.", count)
    return _done(page, found, done, "Resumed the queue")


def _ask_to_pause(page: Page) -> HttpResponse:
    running = [view for view in inspector.overview() if not view.paused]
    if not running:
        page.say(messages.INFO, _("All queues are paused."))
        return HttpResponseRedirect(page.url("changelist"))
    title = ngettext("Pause %(count)s queue?", "Pause all %(count)s queues?", len(running))
    sentence = _(
        "No new handler starts, and running handlers finish. %(ready)s ready and %(pending)s pending "
        "messages stay in the queue. Publishing continues."
    ) % {
        "ready": text.number(sum(view.ready for view in running)),
        "pending": text.number(sum(view.pending for view in running)),
    }
    return confirm(
        page,
        "",
        title % {"count": text.number(len(running))},
        tab="queues",
        sentence=sentence,
        button=_("Yes, pause all"),
        act_url=page.url("pause_all"),
        back_url=page.url("changelist"),
        listed=[text.visible(view.name, limit=200) for view in running[:MAX_LISTED]],
        unlisted=max(0, len(running) - MAX_LISTED),
        inputs=[reason_input()],
    )


def _ask_to_resume(page: Page) -> HttpResponse:
    paused = [view for view in inspector.overview() if view.paused]
    if not paused:
        page.say(messages.INFO, _("No queue is paused."))
        return HttpResponseRedirect(page.url("changelist"))
    title = ngettext("Resume %(count)s paused queue?", "Resume all %(count)s paused queues?", len(paused))
    ready = sum(view.ready for view in paused)
    sentence = ngettext(
        "%(count)s message is ready and will be handled.", "%(count)s messages are ready and will be handled.", ready
    )
    return confirm(
        page,
        "",
        title % {"count": text.number(len(paused))},
        tab="queues",
        sentence=sentence % {"count": text.number(ready)},
        button=_("Yes, resume all"),
        act_url=page.url("resume_all"),
        back_url=page.url("changelist"),
        listed=[text.visible(_paused(view), limit=1000) for view in paused[:MAX_LISTED]],
        unlisted=max(0, len(paused) - MAX_LISTED),
    )


def _paused(view: QueueView) -> str:
    details = pause_details(view.pause)
    return f"{view.name}: {details}" if details else view.name


def _done(page: Page, found: Switched, done: str, logged: str) -> HttpResponse:
    count = len(found.changed)
    page.say(messages.SUCCESS if count else messages.INFO, done % {"count": text.number(count)})
    for name in found.changed:
        page.log(name, logged)
    for name, error in found.errors.items():
        page.say(messages.ERROR, f"{name}: {sentence_of(error)}")
    return HttpResponseRedirect(page.url("changelist"))
