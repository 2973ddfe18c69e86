"""The page of all consumers, and asking them to go quiet or to stop."""

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui import text
from mq_django.admin.ui.confirm import CONFIRMED
from mq_django.admin.ui.live import LiveParts, LiveRows
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, needs
from mq_django.admin.ui.progress_bar import bar
from mq_django.admin.ui.tabs import sections
from mq_django.core.visible import escape
from mq_django.inspector import actions, processes
from mq_django.inspector.processes import Ask, Everybody, ProcessView, RunningMessage, SupervisorView

PARTS = ("unconsumed",)

#: The most supervisors on the page, live ones first, and the most running messages per consumer.
MAX_SHOWN, MAX_RUNNING = 100, 5
#: Queues that are listed; of more there is the number, with a link.
MAX_QUEUES, MAX_ALONE = 5, 20


@needs(VIEW)
def consumers(page: Page) -> HttpResponse:
    """Show all consumers and their running messages."""
    context = _context(page)
    live = _live(page, context).context()
    return page.render("consumers", _("Consumers"), live_url=page.url("consumers_stats"), live=live, **context)


@needs(VIEW)
def stats(page: Page) -> HttpResponse:
    """Return the live parts of the page."""
    return page.shared("consumers", lambda: _live(page, _context(page))).response(page.request)


def _live(page: Page, context: dict[str, Any]) -> LiveParts:
    return page.live(PARTS, context, {"supervisors": LiveRows.of("supervisor", context["supervisors"], "id")})


@needs(VIEW, OPERATE)
def quiet(page: Page, who: str) -> HttpResponse:
    """Ask a consumer, or all consumers of a supervisor, to stop fetching."""
    return _ask(page, who, "quiet")


@needs(VIEW, OPERATE)
def stop(page: Page, who: str) -> HttpResponse:
    """Ask a consumer, or all consumers of a supervisor, to stop when their running handlers have finished."""
    return _ask(page, who, "stop")


def _ask(page: Page, who: str, what: Ask) -> HttpResponse:
    asked = text.from_url(who).decode(errors="replace")
    back_url = page.url("consumers")
    if page.request.method != "POST" or CONFIRMED not in page.request.POST:
        return _confirm(page, asked, what, back_url)
    queues = processes.ask(asked, what)
    name = escape(asked)[:200]
    if not queues:
        page.say(messages.WARNING, _("“%(name)s” is gone: it has stopped.") % {"name": name})
        return HttpResponseRedirect(back_url)
    said = {
        "quiet": _("“%(name)s” was asked to go quiet. It stops fetching within a few seconds."),
        "stop": _("“%(name)s” was asked to stop. It ends when its running handlers have finished."),
    }
    page.say(messages.SUCCESS, said[what] % {"name": name})
    for queue in queues:
        page.log(queue, f"Asked {name} to {'go quiet' if what == 'quiet' else 'stop'}")
    return HttpResponseRedirect(back_url)


def _confirm(page: Page, asked: str, what: Ask, back_url: str) -> HttpResponse:
    found = processes.everybody()
    selected = [
        process
        for supervisor in found.supervisors
        for process in supervisor.processes
        if asked in (process.id, supervisor.id)
    ]
    supervisors = [one.id for one in found.supervisors if one.id == asked and one.housekeeping]
    if not selected and not supervisors:
        page.say(messages.WARNING, _("“%(name)s” is gone: it has stopped.") % {"name": escape(asked)[:200]})
        return HttpResponseRedirect(back_url)
    count, running = len(selected) or len(supervisors), sum(len(process.running) for process in selected)
    titles = {
        "quiet": ngettext("Quiet %(count)s consumer?", "Quiet %(count)s consumers?", count),
        "stop": ngettext("Stop %(count)s consumer?", "Stop %(count)s consumers?", count)
        if selected
        else _("Stop this supervisor?"),
    }
    sentences = {
        "quiet": _(
            "It stops fetching, finishes the messages it holds, and cannot be resumed, only stopped. Messages "
            "that are being handled now: %(running)s."
        ),
        "stop": _(
            "Its running handlers get the grace time to finish. Other messages it holds return to the queue. It is not "
            "replaced. When the last consumer of a runconsumer has stopped, runconsumer ends as well, and your process "
            "manager may restart it. Messages that are being handled now: %(running)s."
        ),
    }
    words = {"quiet": _("Yes, quiet it"), "stop": _("Yes, stop it")}
    return page.render(
        "confirm",
        titles[what] % {"count": text.number(count)},
        tabs=sections(page, "consumers"),
        sentence=sentences[what] % {"running": text.number(running)},
        listed=[text.visible(name, limit=160) for name in [process.id for process in selected[:20]] or supervisors],
        unlisted=text.number(count - 20) if count > 20 else "",
        button=words[what],
        act_url=page.request.path,
        back_url=back_url,
        fields=[(CONFIRMED, "yes")],
        dangerous=what == "stop",
    )


def _context(page: Page) -> dict[str, Any]:
    found = processes.everybody()
    return {
        "tabs": sections(page, "consumers"),
        "summary": _summary(found),
        "supervisors": [_supervisor(page, found, one) for one in found.supervisors[:MAX_SHOWN]],
        "unlisted": text.number(len(found.supervisors) - MAX_SHOWN) if len(found.supervisors) > MAX_SHOWN else "",
        "alone": [{"name": name, "url": page.queue_url(name)} for name in found.alone[:MAX_ALONE]],
        "more_alone": text.number(len(found.alone) - MAX_ALONE) if len(found.alone) > MAX_ALONE else "",
    }


def _summary(found: Everybody) -> str:
    alive = [one for one in found.supervisors if one.alive]
    count = sum(len(one.processes) for one in alive)
    if not count:
        return _("No consumer is running.")
    said = ngettext("%(count)s consumer is running.", "%(count)s consumers are running.", count) % {
        "count": text.number(count)
    }
    gone = len(found.supervisors) - len(alive)
    if not gone:
        return said
    lost = ngettext("%(count)s supervisor is gone.", "%(count)s supervisors are gone.", gone)
    return f"{said} {lost % {'count': text.number(gone)}}"


def _supervisor(page: Page, found: Everybody, one: SupervisorView) -> dict[str, Any]:
    seen = one.seen_ms_ago
    return {
        "id": text.visible(one.id, limit=160),
        "host": text.visible(one.host, limit=80),
        "version": text.visible(one.version, limit=40),
        # Of those that are alive this would only change with every poll.
        "seen": "" if seen is None or one.alive else _("%(time)s ago") % {"time": text.duration(seen)},
        "alive": one.alive,
        "can_operate": page.can(OPERATE),
        "is_asked": all(asked == "stop" for asked in [process.asked for process in one.processes] or [one.asked]),
        "is_quiet": all(process.asked for process in one.processes),
        "quiet_url": page.url("quiet", text.to_url(one.id.encode())),
        "stop_url": page.url("stop", text.to_url(one.id.encode())),
        "has_many": len(one.processes) > 1,
        "housekeeping": [{"name": name, "url": page.queue_url(name)} for name in one.housekeeping],
        "processes": [_process(page, found, one, process) for process in one.processes],
    }


def _process(page: Page, found: Everybody, supervisor: SupervisorView, one: ProcessView) -> dict[str, Any]:
    return {
        "id": text.visible(one.id, limit=160),
        "state": _state(supervisor, one),
        "alive": supervisor.alive,
        "pid": "" if one.pid is None else str(one.pid),
        "threads": text.lanes(one.busy, one.threads),
        "coroutines": text.number(one.coroutines) if one.coroutines else "",
        "since": text.moment(one.since_ms, now=found.now_ms),
        **_queues(page, one),
        "running": [_running(page, item) for item in one.running[:MAX_RUNNING]],
        "more": text.number(len(one.running) - MAX_RUNNING) if len(one.running) > MAX_RUNNING else "",
        "handled": text.number(one.handled),
        "failed": text.number(one.failed),
        "has_failed": one.failed > 0,
        "stacks_url": page.url("stacks", text.to_url(one.id.encode())),
        "quiet_url": "" if one.asked else page.url("quiet", text.to_url(one.id.encode())),
        "stop_url": "" if one.asked == "stop" else page.url("stop", text.to_url(one.id.encode())),
    }


def _queues(page: Page, one: ProcessView) -> dict[str, Any]:
    count = len(one.queues)
    if count <= MAX_QUEUES:
        return {"queues": [{"name": name, "url": page.queue_url(name)} for name in one.queues]}
    return {
        "all_queues": ngettext("%(count)s queue", "%(count)s queues", count) % {"count": text.number(count)},
        "queues_url": f"{page.url('changelist')}?{urlencode({'of': one.id})}",
    }


def _state(supervisor: SupervisorView, one: ProcessView) -> str:
    if not supervisor.alive:
        return _("gone")
    if one.state == "stopping":
        return _("stopping")
    if one.asked == "stop":
        return _("asked to stop")
    if one.state == "quiet":
        return _("quiet")
    return _("asked to go quiet") if one.asked else _("running")


def _running(page: Page, item: RunningMessage) -> dict[str, Any]:
    view = item.entry
    return {
        "name": text.visible(view.message.name, limit=80),
        "id": text.visible(view.message.id, limit=80),
        "queue": item.queue,
        "url": page.url("entry", item.queue, view.source, text.to_url(view.entry)),
        "time": text.duration(item.ms),
        "cancel_url": page.url("cancel_running", item.queue, view.source, text.to_url(view.entry))
        if actions.can_cancel_running(item.queue)
        else "",
        "progress": bar(item.progress, can_see_data=page.can(SEE_DATA)),
    }
