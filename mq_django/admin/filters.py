"""The search form of a list: what it asks for, and how far the look for it has come."""

from typing import Any
from urllib.parse import urlencode

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from mq_django.admin import text
from mq_django.admin.page import SEE_DATA, Page
from mq_django.inspector.scan import Filter, Scanned

#: Fields of the form.
FIELDS = ("name", "key", "error", "from", "to")


def asked(page: Page) -> dict[str, str]:
    """Return what the form was filled with; keys and errors may quote data, and are for those who may see that."""
    sent = page.request.POST if page.request.method == "POST" else page.request.GET
    given = {field: sent.get(field, "").strip()[:200] for field in FIELDS}
    hidden = () if page.can(SEE_DATA) else ("key", "error")
    return {field: value for field, value in given.items() if value and field not in hidden}


def wanted(page: Page, message_id: str = "") -> Filter:
    """Return the filter that the form asks for."""
    fields = asked(page)
    return Filter(
        id=message_id,
        name=fields.get("name", ""),
        key=fields.get("key", ""),
        error=fields.get("error", ""),
        since_ms=_milliseconds(fields.get("from", "")),
        until_ms=_milliseconds(fields.get("to", "")),
    )


def _milliseconds(value: str) -> int | None:
    try:
        found = parse_datetime(value)
    except ValueError:
        return None
    if found is None:
        return None
    return round((found if timezone.is_aware(found) else timezone.make_aware(found)).timestamp() * 1000)


def shown(page: Page, *, message_id: str, with_error: bool = False) -> dict[str, Any]:
    """Return what the form shows."""
    fields = asked(page)
    return {
        "wanted": message_id,
        "filter": fields,
        "filter_key": page.can(SEE_DATA),
        "filter_error": with_error and page.can(SEE_DATA),
    }


def progress(page: Page, some: "Scanned[Any]", *, message_id: str = "") -> dict[str, Any]:
    """Return how far a look has come, and the link that goes on with it."""
    seen = page.request.GET.get("seen", "")
    before = int(seen) if seen.isdecimal() and len(seen) < 16 else 0
    total = before + some.scanned
    onward = {**asked(page), **({"id": message_id} if message_id else {}), "after": some.after, "seen": str(total)}
    return {
        "is_filtered": bool(wanted(page, message_id)),
        "looked": _("Looked through %(count)s messages.") % {"count": text.number(total)},
        "go_on": f"?{urlencode(onward)}" if some.after else "",
    }
