"""Format values as text and HTML, and read JSON. Data of messages is escaped, and invisible characters are shown."""

import csv
import difflib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, timedelta
from math import inf
from typing import Any

from django.utils.formats import number_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.conf import DeliveryOptions, get_config
from mq_django.core import clock
from mq_django.core.breakers import Breaker
from mq_django.core.jsontext import loads
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.limits import Limit
from mq_django.core.options import History, StreamLimits, options_of
from mq_django.core.partitions import public_name
from mq_django.core.retries import RetryPolicy
from mq_django.core.running_handler import Number, Progress
from mq_django.core.texts import escape, runs, truncate
from mq_django.errors import DecodeError
from mq_django.inspector.message_views import progress_of
from mq_django.inspector.problem_sentences import date, duration, local, number, period
from mq_django.inspector.queues import redis_now_ms

#: With what other modules have.
__all__ = ["date", "duration", "number", "period"]

#: Maximum characters of data, traceback or bytes on a page.
LONGEST = 64 * 1024

#: The first characters of formulas.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")

_PLAIN_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-~.")


def visible(text: str, *, limit: int = LONGEST, lines: bool = False) -> SafeString:
    """Return text of unknown origin as HTML: escaped, with isolated text direction and visible control characters."""
    parts = (
        format_html('<span class="mq-odd">{}</span>', part) if odd else format_html("{}", part)
        for part, odd in runs(truncate(text, limit), lines=lines)
    )
    return format_html("<bdi>{}</bdi>", format_html_join("", "{}", ((part,) for part in parts)))


def visible_bytes(value: bytes) -> SafeString:
    """Return bytes as HTML, with those that are not UTF-8 in hexadecimal."""
    return visible(value[:LONGEST].decode(errors="backslashreplace"), lines=True)


def pretty(data: Any) -> SafeString:
    """Return JSON data as HTML, indented."""
    return visible(json.dumps(data, indent=2, ensure_ascii=False), lines=True)


def compact(data: Any) -> SafeString:
    """Return the beginning of JSON data as HTML, on one line."""
    return visible(json.dumps(data, ensure_ascii=False), limit=120)


def rate(per_minute: float) -> str:
    """Return a rate per second or minute; empty for 0."""
    if per_minute < 0.5:
        return ""
    if per_minute < 600:
        return _("%(count)s/min") % {"count": number(per_minute)}
    return _("%(count)s/s") % {"count": number(per_minute / 60)}


def percent(share: float | None) -> str:
    """Return a percentage, "under 1 %" for small ones; empty for None."""
    if share is None:
        return ""
    if 0 < share < 0.01:
        return _("under 1 %")
    return _("%(count)s %%") % {"count": number(share * 100)}


def size(count: int) -> str:
    """Return a number of bytes."""
    if count < 1024:
        return ngettext("%(count)s byte", "%(count)s bytes", count) % {"count": number(count)}
    return _("%(count)s KiB") % {"count": number(count / 1024)}


def slots(busy: int | None, count: int | None) -> str:
    """Return how many threads are busy, of how many; only the latter if the former is unknown."""
    if count is None:
        return ""
    return number(count) if busy is None else f"{number(busy)}/{number(count)}"


def seconds(value: float | None, *, endless: str = "") -> str:
    """Return a handling time or latency; `endless` is the text for one in the last bucket."""
    if value is None:
        return ""
    if value == inf:
        return endless or _("over 7 min")
    if value < 0.0001:
        return _("< 0.1 ms")
    if value < 0.0095:
        return _("%(count)s ms") % {"count": number_format(value * 1000, decimal_pos=1)}
    if value < 0.95:
        return _("%(count)s ms") % {"count": number(value * 1000)}
    if value < 9.5:
        return _("%(count)s s") % {"count": number_format(value, decimal_pos=1)}
    return duration(round(value * 1000))


#: The time of the page that this thread builds, by the clock of Redis: read once, when it is first needed.
_page_ms: ContextVar[list[int] | None] = ContextVar("mq_django_page_ms", default=None)


@contextmanager
def one_time() -> Iterator[None]:
    """Let all times of a page be relative to the same time."""
    token = _page_ms.set([])
    try:
        yield
    finally:
        _page_ms.reset(token)


def now_ms() -> int:
    """Return the time of the page by the clock of Redis, in ms since 1970."""
    found = _page_ms.get()
    if found:
        return found[0]
    read = redis_now_ms()
    if found is not None:
        found.append(read)
    return read


def time_of_day() -> str:
    """Return the time of day in the time zone of the page."""
    return f"{local(clock.now_ms()):%H:%M:%S}"


def moment(ms: int | None, *, now: int = 0, exact: bool = False) -> SafeString | str:
    """Return a time as HTML, relative to now, with its date as the title; if it is `exact`, the date stands before.

    `now` is the time by the clock of Redis if it is known.
    """
    if ms is None:
        return ""
    when = local(ms)
    if when is None:
        return str(ms)
    ahead = ms - (now or now_ms())
    said = (_("in %(time)s") if ahead > 0 else _("%(time)s ago")) % {"time": duration(abs(ahead))}
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        when.astimezone(UTC).isoformat(timespec="milliseconds"),
        date(ms),
        f"{date(ms)}, {said}" if exact else said,
    )


def beyond(count: int, shown: int) -> str:
    """Return how many of something are not shown; "" if all are."""
    return number(count - shown) if count > shown else ""


def form_time(ms: int | None, form: str = "%Y-%m-%dT%H:%M") -> str:
    """Return a time as a field of a form has it; "" without one."""
    when = None if ms is None else local(ms)
    return "" if when is None else when.strftime(form)


class _Echo:
    """A file for `csv` that returns what is written."""

    def write(self, line: str) -> str:
        return line


def csv_lines(rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """Yield rows as lines of CSV, with no text that a spreadsheet takes for a formula: texts may be anything."""
    writer = csv.writer(_Echo())
    for row in rows:
        yield writer.writerow(_cell(cell) for cell in row)


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value


def to_url(member: bytes) -> str:
    """Encode bytes as text that is safe in URLs and forms. Empty bytes become `_-`."""
    found = "".join(chr(byte) if byte in _PLAIN_BYTES else f"_{byte:02X}" for byte in member) or "_-"
    # "." and ".." are no names in a path.
    return f"_2E{found[1:]}" if found.startswith(".") else found


def from_url(text: str) -> bytes:
    """Decode the bytes from the text of `to_url`."""
    parts = re.split(r"_([0-9A-F]{2})", "" if text == "_-" else text)
    plain, quoted = parts[::2], parts[1::2]
    made = [*(part.encode() for part in plain)]
    for index, code in enumerate(quoted):
        made[index] += bytes.fromhex(code)
    return b"".join(made)


def bar_of(queue: str, message_id: str, *, can_see_data: bool) -> dict[str, Any] | None:
    """Return what the template `progress.html` shows of a message; None if it has reported nothing."""
    (found,) = progress_of([(queue, message_id)])
    return bar(found, can_see_data=can_see_data)


def bar(progress: Progress | None, *, can_see_data: bool) -> dict[str, Any] | None:
    """Return what the template `progress.html` shows. A note may contain data, so not every user may see it."""
    if progress is None:
        return None
    said = _number(progress.done)
    if progress.total is not None:
        said = _("%(done)s of %(total)s") % {"done": said, "total": _number(progress.total)}
    note = visible(progress.note, limit=500) if progress.note and can_see_data else ""
    return {**share_bar(progress.fraction, said), "note": note, "at": moment(progress.at_ms)}


def share_bar(share: float | None, said: str) -> dict[str, Any]:
    """Return what the template `progress.html` shows of a share from 0 to 1, or None, and a sentence."""
    return {
        # Not in the user's language: it is an attribute.
        "permille": "" if share is None else str(int(min(1.0, share) * 1000)),
        "percent": "" if share is None else percent(min(1.0, share)),
        "said": said,
        "note": "",
        "at": "",
    }


def _number(value: Number) -> str:
    return number(value) if value == int(value) else str(number_format(value, decimal_pos=1, force_grouping=True))


def settings_of(name: str) -> list[tuple[str, str]]:
    """Return the options of a queue, a group or a topic as rows of a table: name and value."""
    project = get_config()
    is_topic = GROUP_SEPARATOR not in name and public_name(name) in project.topics
    config: DeliveryOptions = project.topic(name) if is_topic else project.queue(name)
    # A group has only the options of deliveries.
    options = options_of(DeliveryOptions if GROUP_SEPARATOR in name else type(config)).values()
    rows = [(option, getattr(config, option.attribute)) for option in options]
    return [
        (option.name, _server(value) if option.name == "CONNECTION" else _value(value, option.is_bytes))
        for option, value in rows
        # Limits are shown in their own table.
        if not isinstance(value, Limit)
    ]


def _server(connection: str) -> str:
    """Return a connection without its login."""
    return re.sub(r"//.*@", "//", connection.partition("?")[0]) if connection else _("that of the project")


def _value(value: Any, is_bytes: bool = False) -> str:
    match value:
        case None:
            return _("none")
        case timedelta():
            return period(value)
        case History():
            limits = {"period": period(value.age), "most": number(value.count)}
            words = _("for %(period)s, of the latest %(most)s") % limits
            return _("%(words)s, with data") % {"words": words} if value.data else words
        case Breaker():
            rule = {"share": percent(value.share), "count": number(value.of), "within": _value(value.within)}
            words = ngettext(
                "when the latest result within %(within)s is a failure",
                "when %(share)s of the latest %(count)s results within %(within)s are failures",
                value.of,
            )
            return _("%(words)s; probe after %(time)s") % {"words": words % rule, "time": _value(value.probe)}
        case StreamLimits():
            limits = {"count": number(value.entries), "size": size(value.bytes), "period": period(value.ttl)}
            words = ngettext(
                "the latest entry, of at most %(size)s, until %(period)s after the end",
                "the latest %(count)s entries, of at most %(size)s in all, until %(period)s after the end",
                value.entries,
            )
            return words % limits
        case RetryPolicy():
            return _retries(value)
        case float():
            return percent(value)
        case bool() | str():
            return str(value)
        case tuple():
            # The weights of keys.
            return ", ".join(f"{key}: {weight:g}" for key, weight in value) or str(True)
    return size(value) if is_bytes else number(value)


def _retries(policy: RetryPolicy) -> str:
    words = _("after %(first)s, then %(factor)s times longer, at most %(longest)s") % {
        "first": _value(policy.delay),
        "factor": f"{policy.factor:g}",
        "longest": _value(policy.max_delay),
    }
    most = policy.max_attempts
    if most is None:
        return words
    counted = ngettext("%(retries)s; %(count)s attempt", "%(retries)s; %(count)s attempts", most)
    return counted % {"retries": words, "count": most}


# JSON that a user types: read it, say where it is wrong, and show what was changed.

#: Lines of a difference that are shown, and characters of each.
MAX_LINES, LONGEST_LINE = 400, 1000


class NotJSON(Exception):
    """A text is not JSON; the sentence says where."""


def read_json(written: str) -> Any:
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
        yield format_html(marks.get(line[:1], "{}\n"), visible(line, limit=LONGEST_LINE))
