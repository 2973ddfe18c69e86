"""The page of the outboxes: messages that are not published yet, and those that were set aside."""

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, HttpResponseBadRequest, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from mq_django.admin.message_lists import facts, shown_error
from mq_django.admin.ui import text
from mq_django.admin.ui.filter_form import MAX_TEXT
from mq_django.admin.ui.page import (
    CHOSEN,
    MAX_LISTED,
    OPERATE,
    PURGE,
    SEE_DATA,
    VIEW,
    Page,
    chosen,
    confirm,
    listed_problems,
    needs,
    sections,
)
from mq_django.conf import get_config
from mq_django.core.texts import escape, truncate
from mq_django.inspector import outbox_views
from mq_django.inspector.outbox_views import MAX_ROWS, OutboxRow, OutboxView, outbox_databases, outboxes, outboxes_of
from mq_django.inspector.problem_list import outbox_problem
from mq_django.inspector.problem_sentences import counted

#: Messages per page.
PER_PAGE = 50

RETRY, DISCARD, RETRY_ALL, DISCARD_ALL = "retry", "discard", "retry_all", "discard_all"
PARTS = ("problems", "outboxes")
#: Outboxes that a page lists: other programs may write any destinations.
MAX_ROWS_SHOWN = 300


@needs(VIEW)
def outbox(page: Page) -> HttpResponse:
    """Show the outboxes of all databases, and a page of the messages of one."""
    context, live_url = _context(page), page.url("outbox_stats")
    live = page.live(PARTS, context).context()
    return page.render("outbox", _("Outbox"), live_url=live_url, live=live, **context, **_listed(page))


@needs(VIEW)
def stats(page: Page) -> HttpResponse:
    """Return the live parts of the page."""
    return page.shared("outbox", lambda: page.live(PARTS, _context(page))).response(page.request)


def _context(page: Page) -> dict[str, Any]:
    found = outboxes()
    thresholds, rows = get_config().thresholds, [view for view in found if not view.error]
    wrong = [outbox_problem(view, what, thresholds) for view in found for what in view.problems(thresholds)]
    waiting, is_more = sum(view.waiting for view in found), any(view.is_more for view in found)
    said = ngettext("%(count)s message is not published yet.", "%(count)s messages are not published yet.", waiting)
    return {
        "tabs": sections(page, "outbox"),
        **listed_problems(page, wrong),
        "summary": said % {"count": counted(waiting, is_more=is_more)},
        "rows": [_row(page, view) for view in rows[:MAX_ROWS_SHOWN]],
        "more_rows": text.beyond(len(rows), MAX_ROWS_SHOWN),
        "keeps": any(view.retained for view in found),
        "has_databases": len({view.database for view in found}) > 1,
    }


def tile(page: Page, name: str) -> list[dict[str, Any]]:
    """Return the tile of the outbox of a queue or topic, for its page; none without an outbox."""
    found = outboxes_of([name])
    if not found:
        return []
    waiting, aside = sum(view.waiting for view in found), sum(view.set_aside for view in found)
    is_more, worst = any(view.is_more for view in found), max(found, key=lambda view: (view.set_aside, view.waiting))
    note = _("cannot be read") if any(view.error for view in found) else ""
    if aside:
        note = _("set aside: %(count)s") % {"count": counted(aside, is_more=is_more)}
    return [
        {
            "label": _("Outbox"),
            "count": counted(waiting, is_more=is_more),
            "note": note,
            "url": f"{page.url('outbox')}?{_query(worst.database, name, waiting=not aside)}",
            "bad": bool(note),
        }
    ]


def _row(page: Page, view: OutboxView) -> dict[str, Any]:
    url = page.url("outbox")
    return {
        "database": view.database,
        "name": text.visible(view.destination, limit=160),
        # It may no longer be in the settings.
        "url": page.queue_url(view.destination) if _is_configured(view.destination) else "",
        "waiting": counted(view.waiting, is_more=view.is_more),
        "waiting_url": f"{url}?{_query(view.database, view.destination, waiting=True)}",
        "oldest": "" if view.waited_ms is None else text.duration(view.waited_ms),
        "is_late": "late" in view.problems(),
        "retained": counted(view.retained, is_more=view.retained >= MAX_ROWS) if view.retained else "",
        "set_aside": counted(view.set_aside, is_more=view.is_more),
        "has_set_aside": view.set_aside > 0,
        "set_aside_url": f"{url}?{_query(view.database, view.destination, waiting=False)}",
    }


def _is_configured(name: str) -> bool:
    config = get_config()
    return name in config.queues or name in config.topics


def _query(database: str, destination: str, *, waiting: bool) -> str:
    shown = {"database": database, "destination": destination, "show": "waiting" if waiting else ""}
    return urlencode({key: value for key, value in shown.items() if value})


def _listed(page: Page) -> dict[str, Any]:
    """Return the context of the list of messages: those that were set aside, or those that wait."""
    asked = page.request.GET
    databases = outbox_databases()
    if not databases:
        return {"has_table": False}
    database = asked.get("database", "")
    database = database if database in databases else databases[0]
    destination, waiting = asked.get("destination", "")[:MAX_TEXT], asked.get("show") == "waiting"
    after = int(asked["after"]) if asked.get("after", "").isdecimal() and len(asked["after"]) < 19 else 0
    found = outbox_views.page_of(database, destination, set_aside=not waiting, after=after, limit=PER_PAGE)
    query = _query(database, destination, waiting=waiting)
    return {
        "has_table": True,
        "database": database,
        "destination": destination,
        "is_waiting": waiting,
        "messages_listed": [_message(page, database, row) for row in found.rows],
        "go_on": "" if found.after is None else f"?{query}&after={found.after}",
        "back": f"?{query}" if after else "",
        "other_url": f"?{_query(database, destination, waiting=not waiting)}",
        "act_url": page.url("outbox_act"),
        "chosen_field": CHOSEN,
    }


def _message(page: Page, database: str, row: OutboxRow) -> dict[str, Any]:
    can_see_data = page.can(SEE_DATA)
    return {
        "row": row.id,
        "url": page.url("outbox_row", text.to_url(database.encode()), str(row.id)),
        "id": text.visible(row.message_id, limit=60),
        "destination": text.visible(row.destination, limit=60),
        "name": text.visible(row.name, limit=60),
        "key": text.visible(row.key, limit=60) if row.key is not None and can_see_data else "",
        "published": text.moment(row.published_ms),
        "due": text.moment(row.due_ms),
        "size": text.size(row.size),
        "error": shown_error(row.error, can_see_data=can_see_data, limit=300),
        "failed": text.moment(row.failed_ms),
    }


@needs(VIEW)
def row(page: Page, database: str, row: str) -> HttpResponse:
    """Show the message of a row, that waits or was set aside, in the same way as one in Redis."""
    alias = text.from_url(database).decode(errors="replace")
    is_known = alias in outbox_databases() and row.isdecimal() and len(row) < 19
    found = outbox_views.get(alias, int(row)) if is_known else None
    message = outbox_views.get_message(alias, int(row)) if is_known else None
    if found is None or message is None:
        return page.leave(page.url("outbox"), _("This row no longer exists: it was published or discarded."))
    can_see_data = page.can(SEE_DATA)
    state = _("set aside") if found.is_set_aside else _("being published") if found.is_claimed else _("waiting")
    first = [(_("Queue or topic"), text.visible(found.destination)), (_("State"), state)]
    due, failed = text.moment(found.due_ms, exact=True), text.moment(found.failed_ms, exact=True)
    buttons = [{"label": _("Publish…"), "action": RETRY}, {"label": _("Discard…"), "action": DISCARD}]
    return page.render(
        "message",
        _("Message"),
        tabs=sections(page, "outbox"),
        act_url=page.url("outbox_act"),
        chosen_field=CHOSEN,
        ref=row,
        fields=[("database", alias)],
        buttons=buttons if found.is_set_aside and page.can(OPERATE) else [],
        error=shown_error(message.error, can_see_data=can_see_data),
        **facts(
            message,
            can_see_data=can_see_data,
            first=first,
            last=[(_("Due"), due), (pgettext("time", "Set aside"), failed)],
        ),
    )


@needs(VIEW, OPERATE)
def act(page: Page) -> HttpResponse:
    """Retry or discard messages that were set aside, after confirmation."""
    given = page.request.POST
    what, database, destination = given.get("action", ""), given.get("database", ""), given.get("destination", "")
    if what not in (RETRY, DISCARD, RETRY_ALL, DISCARD_ALL) or database not in outbox_databases():
        return HttpResponseBadRequest()
    if what == DISCARD_ALL and not page.can(PURGE):
        raise PermissionDenied
    rows = [int(row) for row in chosen(page) if row.isdecimal() and len(row) < 19]
    back_url = f"{page.url('outbox')}?{_query(database, destination, waiting=False)}"
    if what in (RETRY, DISCARD) and not rows:
        return page.leave(back_url, _("Select messages first."))
    if what in (RETRY_ALL, DISCARD_ALL):
        rows = []
    if not page.is_confirmed:
        return _confirm(page, what, database, destination, rows, back_url)
    _do(page, what, database, destination, rows)
    return HttpResponseRedirect(back_url)


def _confirm(page: Page, what: str, database: str, destination: str, rows: list[int], back_url: str) -> HttpResponse:
    is_retry, count = what in (RETRY, RETRY_ALL), len(rows)
    if is_retry:
        title = ngettext("Publish %(count)s message?", "Publish %(count)s messages?", count)
        every, button = _("Publish all that was set aside?"), _("Yes, publish")
        sentence = _("A relay tries to publish again. Rows that Redis refuses again are set aside again.")
    else:
        title = ngettext("Discard %(count)s message?", "Discard %(count)s messages?", count)
        every, button = _("Discard all that was set aside?"), _("Yes, discard")
        sentence = _("Discarded messages cannot be restored and are never handled.")
    first = outbox_views.page_of(database, destination, set_aside=True, limit=MAX_LISTED).rows
    where = [("action", what), ("database", database), ("destination", destination)]
    return confirm(
        page,
        "",
        title % {"count": text.number(count)} if rows else every,
        sentence,
        button,
        tab="outbox",
        back_url=back_url,
        fields=[*where, *((CHOSEN, str(row)) for row in rows)],
        listed=[
            text.visible(f"{row.destination} {row.name} {row.message_id}", limit=200)
            for row in (_rows(database, rows) if rows else first)
        ],
        count=count,
        dangerous=not is_retry,
    )


def _rows(database: str, rows: list[int]) -> list[OutboxRow]:
    """Return the first of some messages, without those that are no longer there."""
    return [row for row in (outbox_views.get(database, row) for row in rows[:MAX_LISTED]) if row is not None]


def _do(page: Page, what: str, database: str, destination: str, rows: list[int]) -> None:
    is_retry = what in (RETRY, RETRY_ALL)
    labels = _rows(database, rows)
    do = outbox_views.retry if is_retry else outbox_views.discard
    count = do(database, rows, destination=destination)
    words = {"count": text.number(count)}
    if is_retry:
        said = ngettext("%(count)s message will be published.", "%(count)s messages will be published.", count)
    else:
        said = ngettext("%(count)s message was discarded.", "%(count)s messages were discarded.", count)
    page.say(messages.SUCCESS if count else messages.INFO, said % words)
    if rows and (missing := len(set(rows)) - count) > 0:
        gone = ngettext("%(count)s was no longer set aside.", "%(count)s were no longer set aside.", missing)
        page.say(messages.WARNING, gone % {"count": text.number(missing)})
    if count:
        verb = "Retried" if is_retry else "Discarded"
        which = ", ".join(escape(row.message_id) for row in labels)
        about = f"{verb} {count} message{'s' * (count != 1)} of the outbox of {escape(database)}" + (
            f": {which}" if which else ""
        )
        names = {destination} if destination else {row.destination for row in labels}
        for name in sorted(names) or ["outbox"]:
            page.log(name, truncate(about, 1000))
