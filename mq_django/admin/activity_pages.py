"""The page of activity: who did what to queues and when, with results, what can be undone, and as CSV."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, get_args
from urllib.parse import urlencode

from django.http import HttpResponse, StreamingHttpResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from mq_django.admin.job_pages import summary
from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, attachment, needs, sections, sentence_of
from mq_django.core.filters import NOTHING, Filter
from mq_django.core.ids import is_run_id
from mq_django.core.jsontext import LARGEST, whole
from mq_django.core.message_format import moment as iso
from mq_django.errors import InvalidFilter, StoreError
from mq_django.inspector import action_log
from mq_django.inspector.action_log import VERBS, Action, Criteria, Verb
from mq_django.inspector.actions import MAX_REASON
from mq_django.inspector.jobs import BackgroundJob
from mq_django.inspector.stream_reader import Scanned
from mq_django.stores.activity import Source

#: The entries of a page, of a batch of the export, and of the export.
PER_PAGE, BATCH, MAX_EXPORTED = 50, 500, 10_000

#: The most queues and messages of an entry that are listed.
MAX_SHOWN = 5

FIELDS = ("who", "source", "verb", "queue", "from", "to")

LABELS: Mapping[Verb, Any] = {
    "pause": gettext_lazy("Pause"),
    "resume": gettext_lazy("Resume"),
    "hold": gettext_lazy("Hold messages"),
    "end hold": gettext_lazy("Release messages"),
    "open breaker": gettext_lazy("Open a breaker"),
    "change limits": gettext_lazy("Change limits"),
    "mute": gettext_lazy("Mute"),
    "unmute": gettext_lazy("Unmute"),
    "publish": gettext_lazy("Publish"),
    "cancel": gettext_lazy("Cancel"),
    "purge": gettext_lazy("Purge"),
    "redrive": gettext_lazy("Redrive"),
    "move": gettext_lazy("Move"),
    "delete": gettext_lazy("Delete"),
    "resubmit": gettext_lazy("Resubmit"),
    "cancel job": gettext_lazy("Cancel a job"),
    "finish job": gettext_lazy("Job ended"),
    "skip message": gettext_lazy("Skip a message"),
    "quiet": gettext_lazy("Quiet"),
    "stop": gettext_lazy("Stop"),
    "seek": gettext_lazy("Move a group"),
    "replay": gettext_lazy("Replay"),
    "unsubscribe": gettext_lazy("Unsubscribe"),
    "repartition": gettext_lazy("Repartition"),
    "create schedule": gettext_lazy("Create a schedule"),
    "change schedule": gettext_lazy("Change a schedule"),
    "pause schedule": gettext_lazy("Pause a schedule"),
    "resume schedule": gettext_lazy("Resume a schedule"),
    "skip tick": gettext_lazy("Skip a tick"),
    "unskip tick": gettext_lazy("Let a tick fire"),
    "fire schedule": gettext_lazy("Fire a schedule"),
    "override schedule": gettext_lazy("Override a schedule"),
    "restore schedule": gettext_lazy("Change a schedule back"),
    "delete schedule": gettext_lazy("Delete a schedule"),
    "forget schedule": gettext_lazy("Forget a schedule"),
    "cancel run": gettext_lazy("Cancel a run"),
    "retry run": gettext_lazy("Retry a run"),
    "skip step": gettext_lazy("Skip a step"),
    "repair run": gettext_lazy("Repair a run"),
    "retry outbox": gettext_lazy("Retry messages of the outbox"),
    "discard outbox": gettext_lazy("Discard messages of the outbox"),
    "renew outbox": gettext_lazy("Renew the outbox"),
    "republish outbox": gettext_lazy("Republish from the outbox"),
    "forget outbox": gettext_lazy("Forget rows of the outbox"),
}

#: Nothing brings back what these have removed.
FINAL = frozenset({"delete", "purge", "cancel", "discard outbox", "unsubscribe", "cancel run", "delete schedule"})

#: They name ids of messages.
OF_MESSAGES = frozenset({"cancel", "redrive", "move", "delete", "resubmit", "publish"})


#: They name what is held: a name, a key or the queue.
OF_HOLDS = frozenset({"hold", "end hold", "open breaker"})


@needs(VIEW)
def show(page: Page) -> HttpResponse:
    """Show what was done, the newest first."""
    filter_form.refuse_others(page, *FIELDS, "after")
    asked, criteria = _asked(page), _criteria(page)
    found = action_log.search(criteria, after=filter_form.given(page, "after") or "", limit=PER_PAGE)
    onward = {**asked, "after": found.after}
    return page.render(
        "activity",
        _("Activity"),
        tabs=sections(page, "activity"),
        rows=_rows(page, found.rows),
        asked=asked,
        verbs=[{"value": verb, "label": LABELS[verb], "is_chosen": asked.get("verb") == verb} for verb in VERBS],
        sources=[{"value": each, "label": each, "is_chosen": asked.get("source") == each} for each in get_args(Source)],
        is_filtered=bool(criteria),
        go_on=f"?{urlencode(onward)}" if found.after else "",
        is_later="after" in page.request.GET,
        export_url=page.url("activity_export") + (f"?{urlencode(asked)}" if asked else ""),
    )


def _asked(page: Page) -> dict[str, str]:
    found = {field: (filter_form.given(page, field) or "").strip() for field in FIELDS}
    return {field: value for field, value in found.items() if value}


def _criteria(page: Page) -> Criteria:
    """Return the filter of a request.

    Raises:
        InvalidFilter: it cannot be applied.
    """
    asked = _asked(page)
    moments = {field: filter_form.moment(asked[field]) for field in ("from", "to") if field in asked}
    times = {field: round(at.timestamp() * 1000) for field, at in moments.items()}
    if asked.get("source", "admin") not in get_args(Source) or asked.get("verb", "pause") not in VERBS:
        raise InvalidFilter(_("There is no such action."))
    return Criteria(
        queue=asked.get("queue", ""),
        who=asked.get("who", ""),
        source=asked.get("source", ""),
        verbs=[asked["verb"]] if "verb" in asked else (),
        since_ms=times.get("from"),
        until_ms=times.get("to"),
    )


def _rows(page: Page, found: Sequence[Action]) -> list[dict[str, Any]]:
    jobs: Mapping[str, BackgroundJob] = {}
    can_end = set[str]()
    # Their servers may be away: what was done is shown without what became of it.
    with suppress(StoreError):
        jobs = action_log.jobs_of_actions(found)
        can_end = action_log.undoable(found, jobs) if page.can(OPERATE) else can_end
    # A job itself is kept for a week. With partitions there is an end for each.
    ends: dict[str, str] = {}
    for each in found:
        if each.verb == "finish job":
            ends[each.job] = ", ".join(filter(None, [ends.get(each.job), _result(each)]))
    return [_row(page, each, jobs.get(each.job), ends.get(each.job, ""), can_end=each.id in can_end) for each in found]


def _row(page: Page, found: Action, job: BackgroundJob | None, end: str, *, can_end: bool) -> dict[str, Any]:
    result = _result(found)
    if found.verb not in ("finish job", "cancel job"):
        result = summary(job) if job is not None else end or result
    job_url = page.url("job", found.queues[0], job.order.messages) if job is not None and found.queues else ""
    return {
        "when": text.moment(found.ms),
        "who": text.visible(found.who, limit=120),
        "source": text.visible(found.source, limit=20),
        "verb": label_of(found),
        "queues": [(text.visible(name, limit=160), page.queue_url(name)) for name in found.queues[:MAX_SHOWN]],
        "more_queues": text.beyond(len(found.queues) + found.more, MAX_SHOWN),
        "about": [(text.visible(shown, limit=200), url) for shown, url in _about(page, found)],
        "chips": filter_form.chips(_filter(found), can_see_data=page.can(SEE_DATA)),
        "reason": text.visible(found.reason, limit=MAX_REASON) if found.reason else "",
        "result": result,
        "job_url": job_url,
        "error": _("It was interrupted: it is not known how much was done.") if found.error else "",
        "is_final": found.verb in FINAL,
        "undo": _undo(page, found, job) if can_end and _may_undo(page, found) else None,
    }


def label_of(found: Action) -> SafeString | str:
    """Return what was done in words; as it is written by a later version that knows more."""
    known = (str(label) for verb, label in LABELS.items() if verb == found.verb)
    return next(known, text.visible(found.verb, limit=40))


def _about(page: Page, found: Action) -> Iterator[tuple[str, str]]:
    """Yield what was changed, with the address of its page or ""."""
    for name in found.about[:MAX_SHOWN]:
        if found.verb == "finish job":
            # The job is named by what it has done.
            yield str(next((label for verb, label in LABELS.items() if verb == name), name)), ""
            continue
        shown = name if page.can(SEE_DATA) else _without_key(found, name)
        url = ""
        if shown == name and name != "…":
            url = _url(page, found.verb, name)
        yield shown, url
    if len(found.about) > MAX_SHOWN:
        yield "…", ""
    if found.target:
        yield f"→ {found.target}", page.queue_url(found.target)


def _without_key(found: Action, name: str) -> str:
    """Return what was changed without a key, which may contain message data."""
    if found.verb in OF_HOLDS and name.startswith("key:"):
        return f"key:{filter_form.HIDDEN}"
    return filter_form.without_unique(name)


def _url(page: Page, verb: str, name: str) -> str:
    if verb in OF_MESSAGES:
        return f"{page.url('find')}?{urlencode({'id': name})}"
    if verb.endswith(("run", "step")) and is_run_id(name):
        return page.url("workflow_run", name)
    return page.url("consumers") if verb in ("quiet", "stop") else ""


def _filter(found: Action) -> Filter:
    try:
        return Filter.of(dict(found.where))
    except InvalidFilter:
        # A later version has more conditions.
        return NOTHING


def _result(found: Action) -> str:
    """Return how many were changed, and what else there was."""
    changed = ngettext("%(count)s changed", "%(count)s changed", found.done) % {"count": text.number(found.done)}
    said = [] if found.done == 1 and found.result and found.verb != "finish job" else [changed]
    for part in filter(None, found.result.split(", ")):
        count, _separator, word = part.partition(" ")
        number = whole(count, LARGEST)
        if number is not None and (words := _counted(word, number)):
            said.append(words % {"count": text.number(number)})
        else:
            said.append(_("cancelled") if part == "cancelled" else part)
    return ", ".join(said)


def _counted(word: str, number: int) -> str:
    """Return a text for a count of a result; "" for another word."""
    return {
        "missing": ngettext("%(count)s no longer existed", "%(count)s no longer existed", number),
        "refused": ngettext("%(count)s refused", "%(count)s refused", number),
        "asked to stop": ngettext("%(count)s asked to stop", "%(count)s asked to stop", number),
        "failed": ngettext("%(count)s failed", "%(count)s failed", number),
        "left": _("some are left"),
    }.get(word, "")


def _may_undo(page: Page, found: Action) -> bool:
    """Return whether a user may see what an undo brings back: the data of a schedule."""
    return found.verb not in action_log.OF_OPTIONS or page.can(SEE_DATA)


def _undo(page: Page, found: Action, job: BackgroundJob | None) -> dict[str, Any]:
    """Return the label, the address and the fields of the form that asks before an entry is undone."""
    queue, about = found.queues[0], found.about[0] if found.about else ""
    schedule = [("schedule", text.to_url(about.encode()))]
    if job is not None:
        return {"label": _("Cancel the job…"), "url": page.url("job_cancel", queue, job.order.messages)}
    match found.verb:
        case "mute":
            query = urlencode({"queue": queue, "kind": about})
            return {"label": _("Unmute…"), "url": f"{page.url('problem_unmute')}?{query}"}
        case "hold" | "open breaker":
            return {"label": _("Release…"), "url": page.url("end_hold", queue, str(found.undo["score"]))}
        case "change limits":
            return {"label": _("Undo…"), "url": f"{page.url('limits', queue)}?{urlencode({'entry': found.id})}"}
        case "pause schedule":
            return {"label": _("Resume…"), "url": page.url("schedule_resume", queue), "fields": schedule}
        case "change schedule" | "delete schedule":
            return {"label": _("Undo…"), "url": page.url("schedule_undo", queue), "fields": [("entry", found.id)]}
        case "skip tick":
            url = f"{page.url('schedule_unskip', queue)}?{urlencode({'tick': found.undo['tick']})}"
            return {"label": _("Let it fire…"), "url": url, "fields": schedule}
    resume_url = f"{page.url('resume', queue)}?{urlencode({'entry': found.id})}"
    return {"label": _("Resume…"), "url": page.url("resume_all") if found.undo.get("name") else resume_url}


# The export.

COLUMNS = ("time", "who", "source", "verb", "queues", "about", "filter", "done", "result", "target", "reason", "job")


@needs(VIEW)
def export(page: Page) -> Any:
    """Stream the entries that match as CSV, the newest first."""
    filter_form.refuse_others(page, *FIELDS)
    criteria = _criteria(page)
    # Read before the headers are sent, so that Redis away is a page.
    first = action_log.search(criteria, limit=BATCH)
    lines = text.csv_lines(_exported(criteria, first, can_see_data=page.can(SEE_DATA)))
    return StreamingHttpResponse(lines, content_type="text/csv; charset=utf-8", headers=attachment("activity.csv"))


def _exported(criteria: Criteria, found: Scanned[Action], *, can_see_data: bool) -> Iterator[Iterable[str]]:
    count = 0
    yield [*COLUMNS, "error"]
    try:
        while True:
            for each in found.rows:
                yield _values(each, can_see_data=can_see_data)
            count += len(found.rows)
            if not found.after or count >= MAX_EXPORTED:
                return
            found = action_log.search(criteria, after=found.after, limit=BATCH)
    except StoreError as error:
        # The headers of the response were already sent.
        yield [_("Incomplete: %(error)s") % {"error": sentence_of(error)}]


def _values(found: Action, *, can_see_data: bool) -> Iterator[str]:
    yield iso(found.ms)
    yield from (found.who, found.source, found.verb, " ".join(found.queues))
    yield " ".join(found.about if can_see_data else (_without_key(found, name) for name in found.about))
    yield ", ".join(filter_form.conditions(_filter(found), can_see_data=can_see_data))
    yield from (str(found.done), found.result, found.target, found.reason, found.job, found.error)
