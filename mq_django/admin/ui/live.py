"""The live parts of a page, and the answers to polls: only what differs from what the browser shows."""

import base64
import gzip
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.cache import patch_vary_headers
from django.utils.safestring import SafeString
from django.utils.translation import get_language

from mq_django.admin.ui import text
from mq_django.conf import get_config
from mq_django.errors import MQError

#: The header of a poll: the versions of the parts that the browser shows, as JSON.
HAVE = "X-MQ-Have"
#: Bytes from which an answer is compressed.
MIN_COMPRESSED = 1000
#: Bytes of rendered rows that a process keeps, because most rows do not change from poll to poll: about 10,000 queues.
MAX_BYTES = 16 * 1024 * 1024
#: Seconds for which viewers with the same rights share the answer to a poll, and the most answers that are kept.
SHARED_FOR, MAX_SHARED = 1.0, 100

_BETWEEN_TAGS = re.compile(r">\s+<")


class Rendered(NamedTuple):
    """A piece of HTML and its version."""

    html: str
    version: str

    @classmethod
    def of(cls, html: str) -> "Rendered":
        """Return HTML with its version."""
        return cls(html, _version(html))


@dataclass(frozen=True, slots=True)
class LiveRows:
    """A part in rows, one element each. A poll gets the rows that have changed, while their keys are the same."""

    keys: Sequence[str]
    rows: Sequence[Rendered]

    @classmethod
    def of(cls, template: str, found: Sequence[Mapping[str, Any]], key: str) -> "LiveRows":
        """Render rows, each by a template that gets it as `row`. `key` is the field that identifies a row."""
        return cls([str(row[key]) for row in found], [_row(template, row) for row in found])

    @property
    def html(self) -> str:
        """Return the HTML of all rows."""
        return "".join(row.html for row in self.rows)

    @property
    def version(self) -> str:
        """Return the version of the keys, and of each row."""
        return f"{_version(chr(0).join(self.keys))}.{''.join(row.version for row in self.rows)}"

    def changed(self, have: str) -> Mapping[int, str] | None:
        """Return the rows that differ from a version, by their index; None if the keys do."""
        keys, _, versions = have.partition(".")
        size = len(keys)
        if keys != self.version.partition(".")[0] or len(versions) != size * len(self.rows):
            return None
        known = [versions[at : at + size] for at in range(0, len(versions), size)]
        pairs = enumerate(zip(self.rows, known, strict=True))
        return {index: row.html for index, (row, version) in pairs if row.version != version}


@dataclass(frozen=True, slots=True)
class LiveParts:
    """The live parts of a page by name, and its summary."""

    summary: str
    parts: Mapping[str, Rendered | LiveRows]

    def context(self) -> Mapping[str, Rendered]:
        """Return the HTML and the version of each part, for the template of the page."""
        return {name: Rendered(SafeString(part.html), part.version) for name, part in self.parts.items()}

    def response(self, request: HttpRequest) -> HttpResponse:
        """Return the answer to a poll: the parts that differ from what the browser has, and their versions."""
        have, whole, rows = _have(request), dict[str, str](), dict[str, Mapping[int, str]]()
        changed = {name: part for name, part in self.parts.items() if have.get(name) != part.version}
        for name, part in changed.items():
            different = part.changed(have.get(name, "")) if isinstance(part, LiveRows) else None
            if different is None:
                whole[name] = part.html
            else:
                rows[name] = different
        versions = {name: part.version for name, part in changed.items()}
        found = {"summary": self.summary, "parts": whole, "rows": rows, "have": versions, "at": text.time_of_day()}
        return _json(request, found)


def _version(text: str) -> str:
    # 24 bits: if two versions are the same by chance, a row is shown until it changes again.
    return base64.urlsafe_b64encode(blake2b(text.encode(errors="replace"), digest_size=3).digest()).decode()


class RowCache:
    """The rows that were rendered or used last, by a digest of what they show, up to a size."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: The row that was used last is the last one.
        self._rows: dict[bytes, Rendered] = {}
        self.size = 0

    def get(self, key: bytes) -> Rendered | None:
        """Return a row, or None."""
        with self._lock:
            found = self._rows.pop(key, None)
            if found is not None:
                self._rows[key] = found
            return found

    def put(self, key: bytes, row: Rendered) -> None:
        """Keep a row, and forget those that were not used for longest."""
        with self._lock:
            self.size += sys.getsizeof(row.html) if self._rows.setdefault(key, row) is row else 0
            while self.size > MAX_BYTES:
                self.size -= sys.getsizeof(self._rows.pop(next(iter(self._rows))).html)


row_cache = RowCache()


def _row(template: str, row: Mapping[str, Any]) -> Rendered:
    key = blake2b(repr((template, get_language(), row)).encode(errors="replace"), digest_size=16).digest()
    found = row_cache.get(key)
    if found is None:
        html = render_to_string(f"admin/mq_django/queue/parts/{template}.html", {"row": row})
        found = Rendered.of(_BETWEEN_TAGS.sub("> <", html.strip()))
        row_cache.put(key, found)
    return found


def _have(request: HttpRequest) -> Mapping[str, str]:
    try:
        found = json.loads(request.headers.get(HAVE, "{}"))
    except (ValueError, RecursionError):
        return {}
    items = found.items() if isinstance(found, dict) else ()
    return {name: version for name, version in items if isinstance(version, str)}


def _json(request: HttpRequest, found: Mapping[str, Any]) -> HttpResponse:
    body = json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    # Nothing in it is secret and chosen by the sender of a request at once, which compression could give away.
    is_compressed = len(body) >= MIN_COMPRESSED and "gzip" in request.headers.get("Accept-Encoding", "")
    response = HttpResponse(gzip.compress(body, 5) if is_compressed else body, content_type="application/json")
    if is_compressed:
        response["Content-Encoding"] = "gzip"
    patch_vary_headers(response, ["Accept-Encoding"])
    return response


@dataclass(slots=True)
class _Shared:
    """The last result of a computation, which one thread at a time makes."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    made_at: float = -1.0
    config: object = None
    result: LiveParts | MQError | None = None

    def get(self, compute: Callable[[], LiveParts]) -> LiveParts:
        with self.lock:
            config = get_config()
            if self.result is None or self.config is not config or time.monotonic() - self.made_at >= SHARED_FOR:
                try:
                    self.result = compute()
                except MQError as error:
                    # Also an error is shared: else each viewer would wait for Redis in turn.
                    self.result = error.with_traceback(None)
                self.config, self.made_at = config, time.monotonic()
            result = self.result
        if isinstance(result, MQError):
            raise result
        return result


_shared: dict[Hashable, _Shared] = {}


def shared(key: Hashable, compute: Callable[[], LiveParts]) -> LiveParts:
    """Return the parts for a poll, computed once for all viewers with the same key.

    Raises:
        MQError: the computation raised it, for this viewer or another one.
    """
    if len(_shared) >= MAX_SHARED:
        _shared.clear()
    return _shared.setdefault(key, _Shared()).get(compute)
