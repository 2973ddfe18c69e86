"""The page of all queues, and its table: which queues it has, in which order, by prefix, and in pages.

A name is known before anything is read, so a filter by name leaves queues unread, and so does a page of names.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, filterfalse
from operator import attrgetter
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext_lazy

from mq_django import inspector
from mq_django.admin import topic_pages
from mq_django.admin.job_pages import running_jobs
from mq_django.admin.queue_page import goes_on, pause_input, paused_for, stays
from mq_django.admin.topic_pages import is_group
from mq_django.admin.ui import charts, text
from mq_django.admin.ui.filter_form import MAX_TEXT
from mq_django.admin.ui.live import LiveParts, LiveRows
from mq_django.admin.ui.page import (
    MAX_LISTED,
    OPERATE,
    TOP_PROBLEMS,
    VIEW,
    Page,
    confirm,
    listed_problems,
    needs,
    sections,
    sentence_of,
)
from mq_django.conf import get_config
from mq_django.core.project import Problem
from mq_django.core.texts import escape
from mq_django.errors import NotSupported, StoreError, UnknownQueue
from mq_django.inspector import actions
from mq_django.inspector.actions import PausedQueues, Switched
from mq_django.inspector.problem_list import KINDS, QueueProblem, problems_among
from mq_django.inspector.problem_sentences import pause_details
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import star, starred, whole_configs
from mq_django.inspector.statistics import sums_of

#: Rows of a page, and queues from which those with the same prefix are a group.
PER_PAGE, MIN_GROUP = 50, 3
#: The order without another one: trouble first, then by name.
DEFAULT = "-state"

_PREFIX = re.compile(r"[^-_.:/]+[-_.:/]")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFilter:
    """Which queues the page lists, and how."""

    #: Text that their names contain, in any case, and how they begin.
    text: str = ""
    prefix: str = ""
    #: Only those with messages, recent activity or problems.
    hides_idle: bool = False
    #: A consumer or supervisor: only its queues.
    of: str = ""
    #: One row for each prefix that several queues have.
    by_prefix: bool = False
    #: A column, after "-" for the largest first.
    sort: str = DEFAULT
    number: int = 1

    @classmethod
    def of_page(cls, page: Page) -> "QueueFilter":
        """Return the filter in the address of a page. What is not valid there counts as missing."""
        given = page.request.GET
        sort, number = given.get("sort", ""), given.get("p", "")
        return cls(
            text=given.get("q", "").strip()[:MAX_TEXT],
            prefix=given.get("prefix", "")[:MAX_TEXT],
            hides_idle=given.get("hide") == "idle",
            of=given.get("of", "")[:MAX_TEXT],
            by_prefix=given.get("group") == "prefix",
            sort=sort if sort.removeprefix("-") in COLUMNS else DEFAULT,
            number=int(number) if number.isdecimal() and len(number) < 7 else 1,
        )

    @property
    def is_narrower(self) -> bool:
        """Return whether it leaves out queues."""
        return bool(self.text or self.prefix or self.hides_idle or self.of)

    def names(self, name: str) -> bool:
        """Return whether a queue or topic may be listed, by its name."""
        return self.text.casefold() in name.casefold() and name.startswith(self.prefix)

    def matches(self, view: QueueView) -> bool:
        """Return whether a queue is listed."""
        if not self.names(view.name):
            return False
        if self.of and not any(self.of in (found.id, found.supervisor) for found in view.consumers):
            return False
        return not (self.hides_idle and view.is_idle)

    def fields(self) -> dict[str, str]:
        """Return the parameters of the page that are set, without the number of the page."""
        found = {
            "q": self.text,
            "prefix": self.prefix,
            "hide": "idle" if self.hides_idle else "",
            "of": self.of,
            "group": "prefix" if self.by_prefix else "",
            "sort": self.sort if self.sort != DEFAULT else "",
        }
        return {field: value for field, value in found.items() if value}

    def query(self, **more: str) -> str:
        """Return the query of a URL, with other parameters; "" without any."""
        found = {field: value for field, value in {**self.fields(), **more}.items() if value}
        return f"?{urlencode(found)}" if found else ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the table before it is shown: a queue, or the queues with a prefix."""

    name: str
    #: Of several queues their sums, without their consumers.
    view: QueueView
    queues: Sequence[QueueView]
    #: The problems of these queues, also muted ones, the worst first.
    problems: Sequence[QueueProblem]

    @property
    def worst(self) -> int:
        """Return how bad its worst problem is, 0 for the worst of all; without one more than for any."""
        return min((KINDS.index(each.kind) for each in self.problems if each.mute is None), default=len(KINDS))

    @property
    def alive(self) -> int:
        """Return the number of live consumers: of several queues each once."""
        if len(self.queues) == 1:
            return self.view.alive
        found = chain.from_iterable(view.consumers for view in self.queues)
        return len({one.id for one in found if one.alive and one.is_process})


@dataclass(frozen=True, slots=True)
class SortColumn:
    """A column by which the rows can be sorted."""

    label: str | Promise
    key: Callable[[Entry], Any]
    kind: str = "mq-number"
    help: str | Promise = ""


COLUMNS: Mapping[str, SortColumn] = {
    "name": SortColumn(gettext_lazy("Queue"), lambda row: row.name, kind=""),
    # As if the least bad was 0: the first click on a head sorts the largest first.
    "state": SortColumn(gettext_lazy("State"), lambda row: -row.worst, kind=""),
    "ready": SortColumn(gettext_lazy("Ready"), lambda row: row.view.ready),
    "waiting": SortColumn(gettext_lazy("Waiting"), lambda row: row.view.delayed + row.view.unhandled + row.view.parked),
    "pending": SortColumn(gettext_lazy("Pending"), lambda row: row.view.pending, kind="mq-number mq-wide"),
    "dead": SortColumn(gettext_lazy("Dead"), lambda row: row.view.dead),
    "consumers": SortColumn(gettext_lazy("Consumers"), lambda row: row.alive),
    "oldest": SortColumn(gettext_lazy("Oldest"), lambda row: -1 if row.view.waited_ms is None else row.view.waited_ms),
    "published": SortColumn(
        pgettext_lazy("count", "Published"),
        lambda row: row.view.activity.per_minute("published"),
        kind="mq-number mq-wide",
        help=gettext_lazy("By mq_django and its scripts. A plain XADD is not counted"),
    ),
    "handled": SortColumn(gettext_lazy("Handled"), lambda row: row.view.activity.per_minute("handled")),
    "errors": SortColumn(
        gettext_lazy("Errors"),
        lambda row: -1.0 if row.view.error_share is None else row.view.error_share,
        help=gettext_lazy("Share of failed attempts in the last half hour"),
    ),
}

#: The columns that are sorted upwards by the first click.
_UPWARDS = ("name",)


def heads(chosen: QueueFilter) -> list[dict[str, Any]]:
    """Return the heads of the columns, each with the address that sorts by it."""
    by, is_down = chosen.sort.removeprefix("-"), chosen.sort.startswith("-")
    found = []
    for name, column in COLUMNS.items():
        turned = not is_down if name == by else name not in _UPWARDS
        sort = f"-{name}" if turned else name
        found.append(
            {
                "label": column.label,
                "kind": column.kind,
                "help": column.help,
                "url": replace(chosen, sort=sort).query() or "?",
                "sorted": ("descending" if is_down else "ascending") if name == by else "",
            }
        )
    return found


@dataclass(frozen=True, slots=True)
class Listing:
    """What was read for the page."""

    views: Sequence[QueueView]
    #: The names of all queues and groups that may be listed, of which those in `views` were read.
    names: Sequence[str]
    #: How many queues there are, without groups.
    total: int
    #: Whether the queues that were read are not all.
    is_part: bool


def read(chosen: QueueFilter, stars: Collection[str]) -> Listing:
    """Read the queues of the page: all of them, for the problems of all, or those that a filter by name leaves.

    Of these only the queues of one page, if they are sorted by name.
    """
    names = [config.name for config in whole_configs()]
    total = sum(not is_group(name) for name in names)
    if not (chosen.text or chosen.prefix):
        return Listing(inspector.overview(names) if names else [], names, total, is_part=False)
    names = to_read = [name for name in names if chosen.names(name)]
    if chosen.sort.removeprefix("-") == "name" and not (chosen.hides_idle or chosen.of or chosen.by_prefix):
        queues = _ordered(filterfalse(is_group, names), chosen.sort, key=str, name=str, stars=stars)
        shown = Paginator(queues, PER_PAGE).get_page(chosen.number).object_list
        to_read = [*shown, *filter(is_group, names)]
    return Listing(inspector.overview(to_read) if to_read else [], names, total, is_part=True)


def table(
    page: Page, chosen: QueueFilter, found: Listing, problems: Sequence[QueueProblem], stars: Collection[str]
) -> dict[str, Any]:
    """Return the context of the table: the rows of one page, and its paginator."""
    of_queue: dict[str, list[QueueProblem]] = defaultdict(list)
    for problem in problems:
        of_queue[problem.queue].append(problem)
    views = [view for view in found.views if not is_group(view.name) and chosen.matches(view)]
    name, key = attrgetter("name"), COLUMNS[chosen.sort.removeprefix("-")].key
    entries = sorted(_entries(views, of_queue, by_prefix=chosen.by_prefix), key=name)
    ordered = _ordered(entries, chosen.sort, key=key, name=name, stars=stars)
    # If only this page was read, there are others that were not.
    is_one = found.is_part and len(found.views) < len(found.names)
    count = sum(not is_group(name) for name in found.names) if is_one else len(views)
    pages = Paginator(range(count) if is_one else ordered, PER_PAGE)
    shown = ordered if is_one else list(pages.get_page(chosen.number).object_list)
    return {
        "rows": [_row(page, chosen, entry, stars) for entry in shown],
        "shown": count,
        "pages": _pages(pages, chosen) if pages.num_pages > 1 else [],
    }


def _pages(pages: "Paginator[Any]", chosen: QueueFilter) -> list[dict[str, Any]]:
    """Return the numbers of the pages, as the admin's paginator has them."""
    current = pages.get_page(chosen.number).number
    return [
        {
            "label": str(number),
            "url": chosen.query(p=str(number)) if isinstance(number, int) else "",
            "is_current": number == current,
        }
        for number in pages.get_elided_page_range(current, on_each_side=2, on_ends=1)
    ]


def _ordered(
    found: Iterable[Any], sort: str, *, key: Callable[[Any], Any], name: Callable[[Any], str], stars: Collection[str]
) -> list[Any]:
    """Return rows, which are in the order of their names, in another one, starred ones first; then by name."""
    ordered = sorted(found, key=key, reverse=sort.startswith("-"))
    return sorted(ordered, key=lambda one: name(one) not in stars)


def _entries(
    views: Sequence[QueueView], of_queue: Mapping[str, list[QueueProblem]], *, by_prefix: bool
) -> Iterable[Entry]:
    counts = Counter(map(prefix_of, (view.name for view in views))) if by_prefix else Counter[str]()
    groups: dict[str, list[QueueView]] = defaultdict(list)
    for view in views:
        prefix = prefix_of(view.name)
        if prefix and counts[prefix] >= MIN_GROUP:
            groups[prefix].append(view)
        else:
            yield Entry(view.name, view, [view], of_queue.get(view.name, []))
    for prefix, queues in groups.items():
        troubles = [problem for view in queues for problem in of_queue.get(view.name, ())]
        readable = [view for view in queues if not view.error]
        sums = sums_of(prefix, readable) if readable else replace(queues[0], name=prefix)
        yield Entry(prefix, sums, queues, sorted(troubles, key=lambda problem: KINDS.index(problem.kind)))


def prefix_of(name: str) -> str:
    """Return the name of a queue up to its first "-", "_", ".", ":" or "/", "" without one."""
    found = _PREFIX.match(name)
    return found[0] if found else ""


def _row(page: Page, chosen: QueueFilter, entry: Entry, stars: Collection[str]) -> dict[str, Any]:
    view, count = entry.view, len(entry.queues)
    alarms = [problem for problem in entry.problems if problem.mute is None]
    row = {
        **charts.queue_cells(page, view, troubled=bool(alarms)),
        "alive": text.number(entry.alive),
        "parts": len(view.parts),
        "external": view.external,
        "published": text.rate(view.activity.per_minute("published")),
        "errors": text.percent(view.error_share),
        "has_errors": view.fails_often,
        "state": state_of(entry),
        "severity": alarms[0].severity if alarms else "",
        "starred": view.name in stars,
        "chart": charts.sparkline(view.activity.handled, label=_("Handled in the last %(minutes)s minutes: %(count)s")),
    }
    if row["paused"] == row["state"]:
        # The state says it.
        row["paused"] = ""
    if count > 1:
        words = ngettext("%(count)s queue", "%(count)s queues", count)
        url = replace(chosen, by_prefix=False, prefix=entry.name).query()
        row |= {"url": url, "queues": words % {"count": text.number(count)}}
    return row


def state_of(entry: Entry) -> str:
    """Return the state of a queue in a word or two: its worst problem, or what it does."""
    if entry.problems:
        said = _WORDS[entry.problems[0].kind]
    elif any(not view.is_served for view in entry.queues):
        said = gettext_lazy("no consumer")
    elif entry.view.fails_often:
        said = pgettext_lazy("queue", "failing")
    elif entry.view.pending:
        said = gettext_lazy("running")
    else:
        said = gettext_lazy("waiting") if entry.view.ready else gettext_lazy("idle")
    return str(said)


_WORDS: Mapping[Problem, str | Promise] = {
    "unreadable": gettext_lazy("cannot be read"),
    "unconsumed": gettext_lazy("no consumer"),
    "unattended": gettext_lazy("no housekeeping"),
    "outbox": gettext_lazy("outbox"),
    "stalled": gettext_lazy("stalled"),
    "lost": gettext_lazy("loses messages"),
    "retention": gettext_lazy("near its retention"),
    "held": pgettext_lazy("queue", "held"),
    "breaker": gettext_lazy("breaker open"),
    "starved": gettext_lazy("no free slot"),
    "unhandled": gettext_lazy("no handler"),
    "schedule": gettext_lazy("schedule"),
    "stuck": gettext_lazy("stuck"),
    "growing": gettext_lazy("growing"),
    "buried": pgettext_lazy("queue", "failing"),
    "late": gettext_lazy("late"),
    "paused": pgettext_lazy("queue", "paused"),
    "hold": gettext_lazy("some held"),
    "ready": pgettext_lazy("queue", "long"),
    "dead": gettext_lazy("dead letters"),
}


PARTS = ("jobs", "problems", "listed")

#: Running jobs that are listed: the table begins on the first screen.
MAX_JOBS = 3
#: In the address of polls: the user has stars.
STARS = "stars"


@needs(VIEW)
def overview(page: Page) -> HttpResponse:
    """Show all queues, problems first."""
    chosen, stars = QueueFilter.of_page(page), _stars(page)
    context = _context(page, chosen, stars)
    polled = chosen.query(p=str(chosen.number) if chosen.number > 1 else "", **{STARS: "1" if stars else ""})
    live = _live(page, context).context()
    return page.render("overview", _("Queues"), live_url=page.url("stats") + polled, live=live, **context)


@needs(VIEW)
def stats(page: Page) -> HttpResponse:
    """Return the live parts of the page."""
    # Users without stars, who are most, share an answer.
    of = STARS in page.request.GET

    def compute() -> LiveParts:
        return _live(page, _context(page, QueueFilter.of_page(page), _stars(page) if of else ()))

    return page.shared(f"overview of {_user(page)}" if of else "overview", compute).response(page.request)


def _live(page: Page, context: dict[str, Any]) -> LiveParts:
    rows = {"rows": LiveRows.of("row", context["rows"], "url")}
    if context["shows_topics"]:
        rows["topics"] = LiveRows.of("topic_row", context["topics"], "url")
    return page.live(PARTS, context, rows)


def _context(page: Page, chosen: QueueFilter, stars: Collection[str]) -> dict[str, Any]:
    found = read(chosen, stars)
    groups = [view.name for view in found.views if topic_pages.is_group(view.name) and chosen.matches(view)]
    rows, of_topics = topic_pages.overview(
        page,
        found.views,
        groups,
        lambda name: not chosen.of and chosen.names(name),
        reads_all=not found.is_part,
    )
    names = [view.name for view in found.views]
    known = problems_among(found.views, names if found.is_part else ()) if names or not found.is_part else []
    jobs = [job for view in found.views for part in view.each_part for job in running_jobs(page, part.name, part.jobs)]
    listed = listed_problems(page, [*of_topics, *known], most=TOP_PROBLEMS)
    if found.is_part:
        # The others were not read.
        listed["summary"] = _("Among the queues on this page: %(summary)s") % {"summary": listed["summary"]}
    return {
        **listed,
        **table(page, chosen, found, known, stars),
        "tabs": sections(page, "queues"),
        "heads": heads(chosen),
        "all": text.number(found.total),
        "filter": chosen.fields(),
        "is_filtered": chosen.is_narrower,
        "grouped_url": replace(chosen, by_prefix=not chosen.by_prefix, prefix="").query() or "?",
        "star_url": page.url("star") + chosen.query(p=str(chosen.number) if chosen.number > 1 else ""),
        # Also without rows: a filter may find some later.
        "shows_queues": found.total > 0,
        "shows_topics": bool(get_config().topics),
        "topics": rows,
        "jobs": jobs[:MAX_JOBS],
        "more_jobs": text.beyond(len(jobs), MAX_JOBS),
        "pause_all_url": page.url("pause_all"),
        "resume_all_url": page.url("resume_all"),
    }


# Stars: the queues that a user wants to see first.


def _user(page: Page) -> str:
    return str(page.request.user.pk)


def _stars(page: Page) -> Sequence[str]:
    # Without them the page is of use, too.
    with suppress(StoreError):
        return starred(_user(page))
    return ()


@needs(VIEW)
def set_star(page: Page) -> HttpResponse:
    """Star a queue for the user, or take the star away."""
    given, back = page.request.POST, page.url("changelist") + page.query
    name = given.get("star") or given.get("unstar", "")
    try:
        star(_user(page), name, is_starred="star" in given)
    except UnknownQueue:
        return page.leave(back, _("There is no queue “%(name)s” in the settings.") % {"name": escape(name)[:160]})
    except NotSupported:
        return page.leave(back, _("You have starred 50 queues: take one star away first."))
    return HttpResponseRedirect(back)


# Pause all queues, and resume what one such action has paused, or single queues, after confirmation.

#: The form fields of the actions and of the queues to resume.
ACTION, QUEUE = "action", "queue"


@needs(VIEW, OPERATE)
def pause_all(page: Page) -> HttpResponse:
    """Pause all queues and groups of topics."""
    if not page.is_confirmed:
        return _ask_to_pause(page)
    given = page.request.POST
    reason, name = given.get("reason", ""), given.get("name", "").strip() or actions.offered_name()
    found = actions.pause_all(who=page.username, reason=reason, name=name)
    count = len(found.changed)
    done = ngettext("%(count)s queue was paused.", "%(count)s queues were paused.", count)
    if found.unchanged:
        before = ngettext(
            "%(count)s queue was paused before.", "%(count)s queues were paused before.", len(found.unchanged)
        )
        page.say(messages.INFO, before % {"count": text.number(len(found.unchanged))})
    return _done(page, found, done, f"{paused_for(reason)} ({name[: actions.MAX_NAME]})")


@needs(VIEW, OPERATE)
def resume_all(page: Page) -> HttpResponse:
    """Resume the queues of actions that have paused several, and others that were selected."""
    if not page.is_confirmed:
        return _ask_to_resume(page)
    names, queues = page.request.POST.getlist(ACTION), page.request.POST.getlist(QUEUE)
    if not (names or queues):
        return page.leave(page.url("resume_all"), _("Select what is resumed first."))
    each = [actions.resume_these(queues), *(actions.resume_all(name=name) for name in names)]
    found = Switched(
        list(dict.fromkeys(name for one in each for name in one.changed)),
        [],
        {name: error for one in each for name, error in one.errors.items()},
    )
    count = len(found.changed)
    done = ngettext("%(count)s queue was resumed.", "%(count)s queues were resumed.", count)
    return _done(page, found, done, "Resumed the queue")


def _ask_to_pause(page: Page) -> HttpResponse:
    running = [view for view in inspector.overview() if not view.paused]
    if not running:
        return page.leave(page.url("changelist"), _("All queues are paused."), messages.INFO)
    title = ngettext("Pause %(count)s queue?", "Pause all %(count)s queues?", len(running))
    name_input = {"name": "name", "label": _("Name"), "value": actions.offered_name()}
    return confirm(
        page,
        "",
        title % {"count": text.number(len(running))},
        stays(running),
        _("Yes, pause all"),
        listed=[text.visible(view.name, limit=200) for view in running],
        inputs=[
            {
                **name_input,
                "maxlength": str(actions.MAX_NAME),
                "help": _("By this name exactly these queues are resumed."),
            },
            pause_input(),
        ],
    )


def _ask_to_resume(page: Page) -> HttpResponse:
    found = actions.pauses(inspector.overview())
    if not found:
        return page.leave(page.url("changelist"), _("No queue is paused."), messages.INFO)
    named = [one for one in found if one.pause.name]
    who = escape(page.username)[: actions.MAX_WHO]
    # The actions of colleagues may not be over.
    own = [one for one in named if one.pause.who == who] if len(named) > 1 else named
    return confirm(
        page,
        "",
        _("Resume paused queues?"),
        _("Only what is selected is resumed. Other queues stay paused."),
        _("Yes, resume them"),
        inputs=[_resumable(number, one, is_selected=one in own) for number, one in enumerate(found)],
    )


def _resumable(number: int, found: PausedQueues, *, is_selected: bool) -> dict[str, Any]:
    """Return the checkbox of an action that has paused several queues, or of a queue that was paused by itself."""
    name, count = found.pause.name, len(found.queues)
    more = [_("and %(count)s more") % {"count": text.number(count - MAX_LISTED)}] if count > MAX_LISTED else []
    listed = f"{', '.join([*map(escape, found.queues[:MAX_LISTED]), *more])}." if name else ""
    label = ngettext("%(name)s: %(count)s queue", "%(name)s: %(count)s queues", count) if name else "%(name)s"
    shown = {"name": escape(name or found.queues[0])[:200], "count": text.number(count)}
    return {
        "is_box": True,
        "is_selected": is_selected,
        "name": ACTION if name else QUEUE,
        "id": f"resumed_{number}",
        "value": name or found.queues[0],
        "label": label % shown,
        "help": " ".join(filter(None, [listed, goes_on(found.ready), pause_details(found.pause)])),
    }


def _done(page: Page, found: Switched, done: str, logged: str) -> HttpResponse:
    count = len(found.changed)
    page.say(messages.SUCCESS if count else messages.INFO, done % {"count": text.number(count)})
    for name in found.changed:
        page.log(name, logged)
    for name, error in found.errors.items():
        page.say(messages.ERROR, f"{name}: {sentence_of(error)}")
    return HttpResponseRedirect(page.url("changelist"))
