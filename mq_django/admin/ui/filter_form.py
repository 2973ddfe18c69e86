"""The filter in a request, its search form, and the progress of its scan.

Every page and every action reads filters here. A filter that cannot be applied is an error. It is never ignored,
because without a filter an action would affect everything.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.utils.dateparse import parse_datetime
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui import text
from mq_django.admin.ui.page import CONFIRMED, SEE_DATA, Page
from mq_django.core.clock import aware
from mq_django.core.filters import FailureGroup, Filter, data_terms, is_exception
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.messages import LookupState
from mq_django.core.texts import escape
from mq_django.errors import InvalidFilter
from mq_django.inspector import message_lists, readers
from mq_django.inspector.message_views import MessageState, MessageView, name_of
from mq_django.inspector.stream_reader import Scanned

# References to messages in URLs, forms and the admin's log, which users without permission to see data can read.
#
# There a message is named by its id. Unique keys, keys and the text of errors may quote its data.

#: Placeholder for hidden text.
HIDDEN = "…"


def handle(page: Page, view: MessageView) -> str:
    """Return the reference of a message for a URL or form; empty if only its unique key, which is hidden, finds it."""
    if view.ref.startswith(UNIQUE_PREFIX) and not page.can(SEE_DATA):
        return ""
    return text.to_url(name_of(view.ref))


def message_url(page: Page, queue: str, view: MessageView) -> str:
    """Return the address of the page of a message; empty if only its unique key finds it, which is hidden."""
    if view.state == "log":
        return page.url("log_entry", queue, view.ref)
    ref = handle(page, view)
    return page.url("message", queue, view.state, ref) if ref else ""


def named(page: Page, handle: str) -> bytes:
    """Return the member of a message from its reference in a URL or form.

    Raises:
        PermissionDenied: it is a unique key, and the user may not see data, but could guess keys.
    """
    found = text.from_url(handle)
    if found.startswith(UNIQUE_PREFIX.encode()) and not page.can(SEE_DATA):
        raise PermissionDenied
    return found


def label(handle: str) -> str:
    """Return a handle for a confirmation or the log: the id, but no unique key."""
    return without_unique(text.from_url(handle).decode(errors="backslashreplace"))


def without_unique(name: str) -> str:
    """Return the reference of a message without a unique key."""
    return HIDDEN if name.startswith(UNIQUE_PREFIX) else name


#: Fields of the form.
FIELDS = ("name", "key", "data", "error", "from", "to")

#: The parameters of a link to a group of dead letters. A link has both. An empty one means: without a name or error.
OF_NAME, OF_ERROR = "of_name", "of_error"

#: Maximum characters of a field: as many as in the name of a group.
MAX_TEXT = 1020


def asked(page: Page, fields: Sequence[str] = FIELDS) -> dict[str, str]:
    """Return the filter fields of a request, from its query or form.

    Raises:
        InvalidFilter: a field cannot be applied, or this user must not filter by it. The text says why.
    """
    found = {field: value.strip() for field in fields if (value := given(page, field))}
    for field, value in found.items():
        if not value:
            raise InvalidFilter(_("The filter “%(field)s” contains only spaces.") % {"field": field})
        if field in ("from", "to"):
            _milliseconds(value)
    # Keys and errors may contain message data.
    if {"key", "data", "error"} & set(found) and not page.can(SEE_DATA):
        raise InvalidFilter(
            _("You do not have permission to filter by key, data or error, because this shows what messages contain.")
        )
    _check_data(found.get("data", ""))
    group = {field: value for field in (OF_NAME, OF_ERROR) if (value := given(page, field)) is not None}
    if not may_ask_for(page, group.get(OF_ERROR, "")):
        raise InvalidFilter(
            _("You do not have permission to filter by this error, because it may contain message data.")
        )
    if len(group) == 1:
        raise InvalidFilter(_("A group of dead letters has a name and an error, and one of them is missing."))
    return found | group


def _check_data(value: str) -> None:
    try:
        data_terms(value)
    except InvalidFilter:
        raise InvalidFilter(
            _(
                "“%(value)s” cannot be looked for in data: close each quotation mark, and give each path a value, as "
                "in customer=C-4242."
            )
            % {"value": escape(value)[:200]}
        ) from None


def query(page: Page) -> str:
    """Return the filter of a request as the query of a URL, empty without one."""
    return f"?{urlencode(terms)}" if (terms := asked(page)) else ""


def may_ask_for(page: Page, error: str) -> bool:
    """Return whether a user may filter by a group of dead letters."""
    return not error or is_exception(error) or page.can(SEE_DATA)


def given(page: Page, field: str) -> str | None:
    """Return the value of a field in the query or form of a request, or None.

    Raises:
        InvalidFilter: the field has several values, or a value that is too long.
    """
    values = {*page.request.GET.getlist(field), *page.request.POST.getlist(field)}
    if len(values) > 1:
        raise InvalidFilter(_("The filter “%(field)s” is given twice.") % {"field": field})
    value = next(iter(values), None)
    if value is not None and len(value) > MAX_TEXT:
        raise InvalidFilter(_("The filter “%(field)s” is too long.") % {"field": field})
    return value


def refuse_others(page: Page, *known: str) -> None:
    """Reject unknown parameters of a request: they may be meant as a filter.

    Raises:
        InvalidFilter: there is an unknown parameter.
    """
    for field in {*page.request.GET, *page.request.POST} - {*known, CONFIRMED, "csrfmiddlewaretoken"}:
        raise InvalidFilter(_("This page has no filter “%(field)s”.") % {"field": escape(field)[:200]})


def group_terms(group: FailureGroup) -> dict[str, str]:
    """Return the parameters that filter by a group of dead letters."""
    return {OF_NAME: group.name, OF_ERROR: group.error}


def criteria(page: Page, message_id: str = "") -> Filter:
    """Return the filter of a request.

    Raises:
        InvalidFilter: it cannot be applied.
    """
    fields = asked(page)
    return Filter(
        id=message_id,
        name=fields.get("name", ""),
        key=fields.get("key", ""),
        data=fields.get("data", ""),
        error=fields.get("error", ""),
        since_ms=_milliseconds(fields["from"]) if "from" in fields else None,
        until_ms=_milliseconds(fields["to"]) if "to" in fields else None,
        group=FailureGroup(fields[OF_NAME], fields[OF_ERROR]) if OF_NAME in fields else None,
    )


def describe(page: Page, *, log: bool = False) -> str:
    """Return the filter as text, empty without one. For the log, keys, data and errors are left out."""
    return ", ".join(conditions(criteria(page), can_see_data=not log))


def chips(where: Filter, *, can_see_data: bool) -> list[SafeString]:
    """Return the conditions of a filter, to be shown beside each other. Without permission none shows data."""
    return [text.visible(words, limit=1000) for words in conditions(where, can_see_data=can_see_data)]


def conditions(where: Filter, *, can_see_data: bool) -> list[str]:
    """Return the conditions of a filter in words."""
    group = where.group
    shows_group = group is not None and (can_see_data or not group.error or is_exception(group.error))
    found: list[tuple[str, str | None, bool]] = [
        (_("name contains “%s”"), where.name or None, True),
        (_("key is “%s”"), where.key or None, can_see_data),
        *((words, value, can_see_data) for words, value in _data_conditions(where)),
        (_("error contains “%s”"), where.error or None, can_see_data),
        (_("published from %s"), None if where.since_ms is None else text.date(where.since_ms), True),
        (_("published until %s"), None if where.until_ms is None else text.date(where.until_ms), True),
        (_("name is “%s”"), None if group is None else group.name, True),
        (_("error is “%s”"), None if group is None else group.error, shows_group),
    ]
    return [words % (escape(value) if is_shown else HIDDEN) for words, value, is_shown in found if value is not None]


def _data_conditions(where: Filter) -> list[tuple[str, str]]:
    return [
        (_("data has “%s”"), f"{term.path}={term.value}") if term.path else (_("data contains “%s”"), term.value)
        for term in data_terms(where.data)
    ]


def _milliseconds(value: str) -> int:
    return round(moment(value).timestamp() * 1000)


def moment(value: str) -> datetime:
    """Return the time in a form field, in the user's time zone.

    Raises:
        InvalidFilter: it is not a date and a time.
    """
    with suppress(ValueError, OverflowError):
        if (found := parse_datetime(value)) is not None:
            return aware(found)
    raise InvalidFilter(_("“%(value)s” is not a date and a time.") % {"value": escape(value)[:200]})


def shown(page: Page, *, message_id: str, with_error: bool = False) -> dict[str, Any]:
    """Return the context of the search form."""
    fields = asked(page)
    return {
        "message_id": message_id,
        "group": describe(page) if OF_NAME in fields else "",
        "group_terms": [(field, fields[field]) for field in (OF_NAME, OF_ERROR) if field in fields],
        "filter": fields,
        "filter_key": page.can(SEE_DATA),
        "filter_error": with_error and page.can(SEE_DATA),
    }


def progress(page: Page, found: "Scanned[Any]", *, message_id: str = "") -> dict[str, Any]:
    """Return the progress of a scan, and the link that continues it."""
    terms = {**asked(page), **({"id": message_id} if message_id else {})}
    return {"is_filtered": bool(criteria(page, message_id)), **onward(page, terms, found.scanned, found.after)}


def onward(page: Page, terms: Mapping[str, str], scanned: int, after: str) -> dict[str, Any]:
    """Return how many messages this page and earlier ones have scanned, and the link that goes on."""
    seen = page.request.GET.get("seen", "")
    total = scanned + (int(seen) if seen.isdecimal() and len(seen) < 16 else 0)
    said = ngettext("Scanned %(count)s message.", "Scanned %(count)s messages.", total)
    return {
        "looked": said % {"count": text.number(total)},
        "go_on": f"?{urlencode({**terms, 'after': after, 'seen': str(total)})}" if after else "",
    }


# Find a message by its id without a scan.


def found_at_once(page: Page, name: str, message_id: str, *, first: MessageState) -> str:
    """Return the URL of a message's page; empty if it can only be found by a scan. Tells what became of it.

    One that is in the state `first` comes before others with its id.
    """
    found = list(message_lists.in_indexes(name, message_id, by_unique=page.can(SEE_DATA)))
    for view in sorted(found, key=lambda view: view.state != first):
        # One that was buried may be ready again, since it was redriven.
        if view.ending != "buried" or first == "handled":
            return message_url(page, name, view)
    ended = readers.ended(name, message_id)
    if ended is not None:
        sentences = {
            LookupState.EXPIRED: _(
                "Message “%(id)s” was discarded %(time)s ago: it had expired before it was handled."
            ),
            LookupState.REPLACED: _("Message “%(id)s” was replaced %(time)s ago by another one with its unique key."),
        }
        sentence, ago = sentences[ended.state], text.duration(max(0, text.now_ms() - ended.ms))
        page.say(messages.WARNING, sentence % {"id": escape(message_id)[:200], "time": ago})
    return ""
