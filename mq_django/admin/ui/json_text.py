"""JSON that a user types: read it, say where it is wrong, and show what was changed."""

import difflib
import json
from collections.abc import Iterator
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from mq_django.admin.ui import text
from mq_django.core.jsontext import loads
from mq_django.core.texts import escape
from mq_django.errors import DecodeError

#: Lines of a difference that are shown, and characters of each.
MAX_LINES, LONGEST_LINE = 400, 1000


class NotJSON(Exception):
    """A text is not JSON; the sentence says where."""


def read(written: str) -> Any:
    """Return the value of JSON text that a user has typed.

    Raises:
        NotJSON: it is something else.
    """
    try:
        return loads(written.encode(errors="surrogatepass"))
    except DecodeError as error:
        raise NotJSON(_sentence(written, str(error))) from error


def _sentence(written: str, otherwise: str) -> str:
    try:
        json.loads(written)
    except json.JSONDecodeError as error:
        where = {"line": error.lineno, "column": error.colno, "reason": error.msg}
        return _("This is not JSON. Line %(line)s, column %(column)s: %(reason)s.") % where
    except (ValueError, RecursionError):
        pass
    return _("This is not JSON: %(reason)s.") % {"reason": escape(otherwise)[:200]}


def difference(before: Any, after: Any) -> SafeString:
    """Return the unified difference of two JSON values as HTML; empty if they are equal."""
    old, new = (json.dumps(value, indent=2, ensure_ascii=False).splitlines() for value in (before, after))
    found = list(difflib.unified_diff(old, new, lineterm=""))[2:]
    shown = format_html_join("", "{}", ((line,) for line in _marked(found[:MAX_LINES])))
    more = format_html("…\n") if len(found) > MAX_LINES else ""
    return format_html("{}{}", shown, more) if found else SafeString()


def _marked(lines: list[str]) -> Iterator[SafeString]:
    marks = {"+": "<ins>{}\n</ins>", "-": "<del>{}\n</del>"}
    for line in lines:
        yield format_html(marks.get(line[:1], "{}\n"), text.visible(line, limit=LONGEST_LINE))
