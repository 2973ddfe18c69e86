"""The search form of a list: what it asks for, and how far the look for it has come."""

from typing import Any
from urllib.parse import urlencode

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from mq_django.admin import text
from mq_django.admin.page import SEE_DATA, Page
from mq_django.core.filters import Filter, Group
from mq_django.core.visible import spell
from mq_django.inspector.scan import Scanned

#: Fields of the form.
FIELDS = ("name", "key", "error", "from", "to")

#: What a link to a group of dead letters asks for: each of the two may be empty, and then the group has none.
OF_NAME, OF_ERROR = "of_name", "of_error"


def asked(page: Page) -> dict[str, str]:
    """Return what the form was filled with; keys and errors may quote data, and are for those who may see that."""
    sent = page.request.POST if page.request.method == "POST" else page.request.GET
    given = {field: sent.get(field, "").strip()[:200] for field in FIELDS}
    hidden = () if page.can(SEE_DATA) else ("key", "error")
    found = {field: value for field, value in given.items() if value and field not in hidden}
    if OF_NAME in sent:
        found |= {field: sent.get(field, "")[:1020] for field in (OF_NAME, OF_ERROR)}
    return found


def group_terms(group: Group) -> dict[str, str]:
    """Return what asks for a group of dead letters."""
    return {OF_NAME: group.name, OF_ERROR: group.error}


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
        group=Group(fields[OF_NAME], fields[OF_ERROR]) if OF_NAME in fields else None,
    )


def told(page: Page) -> str:
    """Return in words what the form asks for; empty when that is everything."""
    words = {
        "name": _("name has “%s”"),
        "key": _("key is “%s”"),
        "error": _("error has “%s”"),
        "from": _("published from %s"),
        "to": _("published until %s"),
        OF_NAME: _("name is “%s”"),
        OF_ERROR: _("error is “%s”"),
    }
    return ", ".join(words[field] % spell(value) for field, value in asked(page).items())


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
        "group": told(page) if OF_NAME in fields else "",
        "group_terms": [(field, fields[field]) for field in (OF_NAME, OF_ERROR) if field in fields],
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
