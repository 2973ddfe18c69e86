"""The table of the page of all queues: which queues it has, in which order, by prefix, and in pages.

A name is known before anything is read, so a filter by name leaves queues unread, and so does a page of names.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext_lazy

from mq_django import inspector
from mq_django.admin.topic_pages import is_group
from mq_django.admin.ui import charts, text
from mq_django.admin.ui.filter_form import MAX_TEXT
from mq_django.admin.ui.page import Page
from mq_django.core.thresholds import Problem
from mq_django.inspector.problem_list import KINDS, QueueProblem
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import whole_configs
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
        queues = _starred_first(_sorted(filter(_is_queue, names), str, chosen.sort), str, stars)
        shown = _paginator(queues).get_page(chosen.number).object_list
        to_read = [*shown, *filter(is_group, names)]
    return Listing(inspector.overview(to_read) if to_read else [], names, total, is_part=True)


def _name(entry: Entry) -> str:
    return entry.name


def _is_queue(name: str) -> bool:
    return not is_group(name)


def table(
    page: Page, chosen: QueueFilter, found: Listing, problems: Sequence[QueueProblem], stars: Collection[str]
) -> dict[str, Any]:
    """Return the context of the table: the rows of one page, and its paginator."""
    of_queue: dict[str, list[QueueProblem]] = defaultdict(list)
    for problem in problems:
        of_queue[problem.queue].append(problem)
    views = [view for view in found.views if not is_group(view.name) and chosen.matches(view)]
    entries = sorted(_entries(views, of_queue, by_prefix=chosen.by_prefix), key=_name)
    ordered = _starred_first(_sorted(entries, COLUMNS[chosen.sort.removeprefix("-")].key, chosen.sort), _name, stars)
    # If only this page was read, there are others that were not.
    is_one = found.is_part and len(found.views) < len(found.names)
    count = sum(map(_is_queue, found.names)) if is_one else len(views)
    pages = _paginator(range(count) if is_one else ordered)
    shown = ordered if is_one else list(pages.get_page(chosen.number).object_list)
    return {
        "rows": [_row(page, chosen, entry, stars) for entry in shown],
        "shown": count,
        "pages": _pages(pages, chosen) if pages.num_pages > 1 else [],
    }


def _paginator(found: Sequence[Any]) -> "Paginator[Any]":
    return Paginator(found, PER_PAGE)


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


def _sorted(found: Iterable[Any], key: Callable[[Any], Any], sort: str) -> list[Any]:
    """Return rows, which are in the order of their names, in another one; of the same value by name."""
    return sorted(found, key=key, reverse=sort.startswith("-"))


def _starred_first(found: list[Any], name: Callable[[Any], str], stars: Collection[str]) -> list[Any]:
    return sorted(found, key=lambda one: name(one) not in stars)


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
