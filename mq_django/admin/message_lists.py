"""The list of a queue's messages in one state."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext, pgettext_lazy

from mq_django.admin.job_pages import CANCEL, DELETE, MOVE, PURGE_READY, REDRIVE, job_line, verb_of
from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.page import CHOSEN, OPERATE, PURGE, SEE_DATA, VIEW, Page, needs, tabs
from mq_django.conf import get_config
from mq_django.core.filters import error_class, is_exception
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.messages import Ending
from mq_django.core.redaction import redact_forms
from mq_django.core.retries import FAILED, Attempt
from mq_django.inspector import actions, dead_letters
from mq_django.inspector.explain import reason
from mq_django.inspector.message_lists import messages as list_messages
from mq_django.inspector.message_views import MessageState, MessageView, WaitingState, is_in_log
from mq_django.inspector.queues import quick_stats
from mq_django.inspector.statistics import RunTimes, run_time, run_times
from mq_django.stores.background_jobs import ACTIONS

# A message as a table row and as a list of labels and values.

#: A label and its value; empty values are left out.
Fact = tuple[str, SafeString | str]


def shown_error(error: str, *, can_see_data: bool, limit: int = text.LONGEST) -> SafeString | str:
    """Return an error as HTML. Users who may not see data get only its class, because its text may contain data."""
    if can_see_data:
        return text.visible(error, limit=limit, lines=limit == text.LONGEST)
    name = error_class(error)
    return text.visible(name) if is_exception(name) else ""


def ending_words(ending: Ending) -> str:
    """Return what became of a message, as a word for a table."""
    return {
        "handled": _("handled"),
        "expired": _("expired"),
        "buried": _("became a dead letter"),
        "cancelled": _("cancelled"),
    }[ending]


def state_words(state: str, ending: Ending | None) -> str:
    """Return where a message was found, or what became of it, as words for a table."""
    if ending is not None:
        return ending_words(ending)
    return {
        "delayed": _("delayed"),
        "unhandled": _("unhandled: no consumer has a handler"),
        "parked": _("parked: held, or over the limit of its key"),
        "ready": _("ready"),
        "pending": _("pending"),
        "dead": _("dead letter"),
        "handled": _("handled"),
        "expired": _("discarded: it had expired"),
        "replaced": _("replaced by another with its unique key"),
        "result": _("its task has ended"),
        "log": _("in the log of the topic"),
    }[state]


def preview(view: MessageView, *, can_see_data: bool) -> SafeString | str:
    """Return the beginning of a message's data for a row of a table."""
    if not can_see_data:
        return _("hidden")
    if view.has_data:
        return text.compact(view.data)
    return _("could not be decoded") if view.problem else _("long: %(size)s") % {"size": text.size(view.size)}


def listed(view: MessageView, *, can_see_data: bool) -> dict[str, Any]:
    """Return the cells of a message's table row."""
    return {
        "id": text.visible(view.id, limit=60),
        "name": text.visible(view.name, limit=60),
        "attempt": view.attempt,
        "key": text.visible(redact_forms(view.key), limit=60) if view.key is not None and can_see_data else "",
        "data": preview(view, can_see_data=can_see_data),
    }


def facts(
    view: MessageView, *, can_see_data: bool, first: Sequence[Fact] = (), last: Sequence[Fact] = ()
) -> dict[str, Any]:
    """Return the context of a message's page. Key, headers and data only for users who may see data."""
    found = [
        (_("Id"), text.visible(view.id)),
        (_("Name"), text.visible(view.name) if view.name else ""),
        *first,
        (pgettext("time", "Published"), text.moment(view.published_ms, exact=True)),
        *last,
        (_("Expires"), text.moment(view.expires_ms, exact=True)),
        (_("Priority"), str(view.priority) if view.priority else ""),
    ]
    if can_see_data:
        found += [
            (_("Key"), text.visible(redact_forms(view.key)) if view.key is not None else ""),
            (_("Unique key"), text.visible(view.unique) if view.unique is not None else ""),
            *((text.visible(name), text.visible(value)) for name, value in sorted(view.headers.items())),
        ]
    found.append((_("Size"), text.size(view.size)))
    return {
        "facts": [(label, value) for label, value in found if value],
        "data": text.pretty(view.data) if view.has_data and can_see_data else "",
        "too_long": not view.has_data and not view.problem,
        "message_error": shown_error(view.problem, can_see_data=can_see_data) if view.problem else "",
        "attempts": [_attempt(attempt, can_see_data=can_see_data) for attempt in view.attempts],
    }


def _attempt(attempt: Attempt, *, can_see_data: bool) -> dict[str, Any]:
    started, finished, is_end = attempt.started_ms, attempt.finished_ms, attempt.status == FAILED
    took = None if started is None or finished is None else max(0, finished - started) / 1000
    return {
        "number": text.number(attempt.number),
        "ending": _("gave up") if is_end else _("failed, will be retried"),
        "is_end": is_end,
        "consumer": text.visible(attempt.consumer, limit=100),
        "ended": text.moment(finished, exact=True),
        "took": text.seconds(took),
        "error": shown_error(attempt.error, can_see_data=can_see_data),
        "traceback": text.visible(attempt.traceback, lines=True) if attempt.traceback and can_see_data else "",
    }


#: Messages per page.
PER_PAGE = 50

TITLES: Mapping[MessageState, Promise] = {
    "ready": gettext_lazy("Ready messages"),
    "pending": gettext_lazy("Pending messages"),
    "delayed": gettext_lazy("Delayed messages"),
    "unhandled": gettext_lazy("Unhandled messages"),
    "parked": gettext_lazy("Parked messages"),
    "dead": gettext_lazy("Dead letters"),
    "handled": gettext_lazy("Handled messages"),
}

_EMPTY: Mapping[MessageState, Promise] = {
    "ready": gettext_lazy("No ready messages."),
    "pending": gettext_lazy("No pending messages."),
    "delayed": gettext_lazy("No delayed messages."),
    "unhandled": gettext_lazy("No unhandled messages."),
    "parked": gettext_lazy("No parked messages."),
    "dead": gettext_lazy("No dead letters."),
    "handled": gettext_lazy("No handled messages."),
}


class Column(NamedTuple):
    """A column of a list: the key of its cells in a row, its heading, and the classes of its cells."""

    cell: str
    label: Promise
    css: str


_NAME = Column("name", gettext_lazy("Name"), "mq-name")
_ATTEMPT = Column("attempt", gettext_lazy("Attempt"), "mq-number mq-wide")
_CONSUMER = Column("consumer", gettext_lazy("Consumer"), "mq-name mq-wide")
_PUBLISHED = Column("published", pgettext_lazy("time", "Published"), "nowrap")
_DATA = Column("data_code", gettext_lazy("Data"), "mq-data")

#: The columns of each state, after that of the message.
COLUMNS: Mapping[MessageState, Sequence[Column]] = {
    "ready": (
        _NAME,
        Column("at", gettext_lazy("Ready since"), "nowrap"),
        Column("priority", gettext_lazy("Priority"), "mq-number mq-wide"),
        _ATTEMPT,
        _DATA,
    ),
    "pending": (
        _NAME,
        Column("consumer", gettext_lazy("Consumer"), "mq-name"),
        Column("running", gettext_lazy("Running for"), "nowrap"),
        _ATTEMPT,
        _DATA,
    ),
    "delayed": (_NAME, Column("at", gettext_lazy("Due"), "nowrap"), _ATTEMPT, _DATA),
    "unhandled": (_NAME, _PUBLISHED, _ATTEMPT, _DATA),
    "parked": (_NAME, _PUBLISHED, Column("key", gettext_lazy("Key"), "mq-name"), _ATTEMPT, _DATA),
    "dead": (
        _NAME,
        Column("reason", gettext_lazy("Reason"), "mq-reason mq-wide"),
        Column("error", gettext_lazy("Error"), "mq-error"),
        Column("tries", gettext_lazy("Attempts"), "mq-number mq-wide"),
        Column("at", gettext_lazy("Buried"), "nowrap"),
        _DATA,
    ),
    "handled": (
        _NAME,
        Column("ending", gettext_lazy("Ending"), ""),
        Column("at", gettext_lazy("Ended"), "nowrap"),
        Column("took", gettext_lazy("Took"), "mq-number nowrap"),
        _ATTEMPT,
        _CONSUMER,
        _DATA,
    ),
}

#: The columns of what was found in the log of a topic.
LOG_COLUMNS = (_NAME, _PUBLISHED, _DATA)

#: What is done only with selected messages: they are published again, as new ones, or exported.
AGAIN, EXPORT = "again", "export"

#: What is done with selected messages of a state.
OF_CHOSEN: Mapping[MessageState, Sequence[str]] = {
    "ready": (MOVE,),
    "pending": (CANCEL,),
    "handled": (AGAIN, EXPORT),
    **dict.fromkeys(get_args(WaitingState), (CANCEL, MOVE)),
    "dead": (REDRIVE, MOVE, DELETE),
}
#: The labels of the button, and of the action on all that match.
_CHOSEN: Mapping[str, Promise] = {
    CANCEL: gettext_lazy("Cancel selected…"),
    REDRIVE: gettext_lazy("Redrive selected…"),
    MOVE: gettext_lazy("Move selected…"),
    DELETE: gettext_lazy("Delete selected…"),
    AGAIN: gettext_lazy("Publish selected again…"),
    EXPORT: gettext_lazy("Export selected as JSON lines"),
}
_ALL: Mapping[str, tuple[Promise, Promise]] = {
    CANCEL: (gettext_lazy("Cancel all %(total)s…"), gettext_lazy("Cancel all matching…")),
    REDRIVE: (gettext_lazy("Redrive all %(total)s…"), gettext_lazy("Redrive all matching…")),
    MOVE: (gettext_lazy("Move all %(total)s…"), gettext_lazy("Move all matching…")),
    DELETE: (gettext_lazy("Delete all %(total)s…"), gettext_lazy("Delete all matching…")),
    PURGE_READY: (gettext_lazy("Purge all ready messages…"), gettext_lazy("Purge all matching…")),
}


@needs(VIEW)
def listing(page: Page, name: str, state: MessageState) -> HttpResponse:
    """Show the messages of a queue in a state, page by page, or find one by its id."""
    message_id, after = page.request.GET.get("id", "").strip(), page.request.GET.get("after", "")
    has_index = state not in ("ready", "pending")
    if message_id and not after:
        url = filter_form.found_at_once(page, name, message_id, first=state)
        if url:
            return HttpResponseRedirect(url)
        if has_index:
            page.say(messages.WARNING, _("There is no message with the id “%(id)s” here.") % {"id": message_id[:200]})
    scanned_for = "" if has_index else message_id
    criteria = filter_form.criteria(page, scanned_for)
    found = list_messages(name, state, criteria, after=after, limit=PER_PAGE, by_end=state == "handled")
    view = quick_stats(name)
    times = run_times(view) if state == "pending" else {}
    total = "" if state == "handled" else text.number(getattr(view, state))
    progress = filter_form.progress(page, found, message_id=scanned_for)
    is_filtered = progress["is_filtered"]
    has_rows = bool(found.rows or (is_filtered and found.after))
    return page.render(
        "messages",
        str(TITLES[state]),
        queue=name,
        tabs=tabs(page, name, state, view),
        help=_help(name, state),
        links=_links(page, name, has_rows=bool(found.rows), is_filtered=is_filtered) if state == "dead" else [],
        **table(page, COLUMNS[state], [row_of(page, name, row, times, now_ms=view.now_ms) for row in found.rows]),
        empty=_("None found yet.") if is_filtered else str(_EMPTY[state]),
        total=total,
        is_later_page="after" in page.request.GET,
        **_actions(page, name, state, total, has_rows=has_rows, on=is_filtered, by_id=bool(scanned_for)),
        **next((job_line(page, name, acted) for acted in ACTIONS if acted == state), {}),
        **filter_form.shown(page, message_id=message_id, with_error=state == "dead"),
        filter_by_end=state == "handled",
        **progress,
    )


def table(page: Page, columns: Sequence[Column], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the context of a table of messages. Keys are shown only to users who may see data."""
    columns = [column for column in columns if column.cell != "key" or page.can(SEE_DATA)]
    numbers = {"mq-number", "mq-wide"}
    heads = [(column.label, " ".join(word for word in column.css.split() if word in numbers)) for column in columns]
    for row in rows:
        row["data_code"] = format_html("<code>{}</code>", row["data"])
        row["cells"] = [(column.css, row[column.cell]) for column in columns]
    return {"heads": heads, "rows": rows}


def row_of(page: Page, name: str, view: MessageView, times: RunTimes, *, now_ms: int) -> dict[str, Any]:
    """Return the cells of a message in a list."""
    can_see_data, ms = page.can(SEE_DATA), run_time(view, times)
    url = filter_form.message_url(page, name, view)
    cells = listed(view, can_see_data=can_see_data)
    if not url:
        # Without an id in the body, the id is the unique key.
        cells["id"] = text.visible(filter_form.without_unique(view.id), limit=60)
    if view.state == "handled" and not view.has_data:
        cells["data"] = _("not kept")
    return {
        **cells,
        # Without it, a message cannot be selected.
        "ref": "" if is_in_log(view.state, view.ref) else filter_form.handle(page, view),
        "url": url + filter_form.query(page) if url else "",
        "at": text.moment(view.at_ms, now=now_ms),
        "published": text.moment(view.published_ms, now=now_ms),
        "priority": str(view.priority or ""),
        "consumer": text.visible(view.consumer, limit=60),
        "running": "" if ms is None else text.duration(ms),
        "reason": text.visible(reason(view.reason), limit=40),
        "error": shown_error(view.error, can_see_data=can_see_data, limit=160),
        "tries": text.number(view.tries),
        "ending": _ending(view),
        "took": text.seconds(view.seconds),
    }


def _ending(view: MessageView) -> SafeString | str:
    if view.ending is None:
        return ""
    words = ending_words(view.ending)
    return words if view.ending == "handled" else format_html('<span class="mq-bad">{}</span>', words)


def _help(name: str, state: MessageState) -> str:
    if state == "unhandled":
        return _(
            "No consumer has a handler for their name. They become ready when a consumer with one starts. Its module "
            "must be in an installed app, or in MODULES."
        )
    if state == "parked":
        return _(
            "They are held, or wait in the line of their key: for its limit, for an earlier message of it, or for its "
            "turn. The messages of a key become ready in their original order."
        )
    if state == "handled":
        history = get_config().queue(name).history
        if history is None:
            return _("This queue does not keep what became of messages. Its option HISTORY says for how long it does.")
        limits = {"period": text.period(history.age), "most": text.number(history.count)}
        return _("What became of messages is kept for %(period)s, of the latest %(most)s.") % limits
    return ""


def _links(page: Page, name: str, *, has_rows: bool, is_filtered: bool) -> list[tuple[str, str]]:
    """Return the links above the list of dead letters."""
    found = [(page.url("dead_groups", name), _("Group by error"))]
    if has_rows and page.can(SEE_DATA):
        label = _("Export all matching as JSON lines") if is_filtered else _("Export as JSON lines")
        found.append((page.url("dead_export", name) + filter_form.query(page), label))
    return found


def _actions(
    page: Page, name: str, state: MessageState, total: str, *, has_rows: bool, on: bool, by_id: bool
) -> dict[str, Any]:
    """Return what this user can do with selected messages, and with all, or with all that match if a filter is `on`.

    A job has no filter by id.
    """
    query, context = filter_form.query(page), dict[str, Any]()
    context |= {"act_url": page.url("chosen", name, state) + query, "chosen_field": CHOSEN}
    if not has_rows or not page.can(OPERATE):
        return context
    one, every = offered(name, state), []
    for what in () if by_id else next((found for acted, found in ACTIONS.items() if acted == state), ()):
        if (what == DELETE and not page.can(PURGE)) or (what == MOVE and MOVE not in one):
            continue
        words = _ALL[verb_of(state, what)]
        every.append((page.url("act_on_all", name, state, what) + query, str(words[on]) % {"total": total}))
    return context | {"chosen_actions": chosen_actions(page, name, state), "all_actions": every}


def chosen_actions(page: Page, name: str, state: MessageState) -> list[tuple[str, str]]:
    """Return what this user can do with selected messages of a state, each with the label of its button."""
    may = page.can(OPERATE) and (state != "handled" or page.can(SEE_DATA))
    return [(what, str(_CHOSEN[what])) for what in offered(name, state)] if may else []


def offered(name: str, state: MessageState) -> list[str]:
    """Return what can be done with selected messages of a state. Without another queue, none are moved.

    The data of handled ones may not have been kept.
    """
    if state == "pending" and not actions.can_cancel_running(name):
        return []
    if state == "handled" and ((history := get_config().queue(name).history) is None or not history.data):
        return []
    cannot = [*([] if dead_letters.targets(name) else [MOVE]), *([AGAIN] if GROUP_SEPARATOR in name else [])]
    return [what for what in OF_CHOSEN.get(state, ()) if what not in cannot]
