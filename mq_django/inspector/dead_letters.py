"""Dead letters as people see them."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mq_django.conf import get_config
from mq_django.core.jsontext import dumps
from mq_django.core.messages import DeadLetter
from mq_django.core.redaction import redact_text
from mq_django.core.wire import MAX_ENTRY_BYTES
from mq_django.inspector.messages import MessageView, view_of
from mq_django.inspector.scan import Filter
from mq_django.stores.dead import DeadLetters, Fields, is_entry, letter_of, number_of, text_of
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled

#: Dead letters that are counted by name and error, and how many are read at a time; whole ones are fewer.
MAX_GROUPED, BATCH, WHOLE = 5000, 500, 50

#: Seconds after which the counting ends early: a page is to be there in less than 0.3.
SECONDS = 0.12

_ERROR_NAME = re.compile(r"([A-Za-z_][\w.]{0,200})(?=:|\Z)", re.ASCII)

#: Newer dead letters that are counted to tell how many there are up to one of them.
MAX_COUNTED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterView:
    """A dead letter, with the secrets in its data, error and traceback replaced."""

    #: Its name among the queue's dead letters.
    entry: str
    message: MessageView
    #: `attempts`, `error`, `undecodable`, `crashed` or `expired`.
    reason: str
    error: str
    #: Empty on a page of many.
    traceback: str
    attempts: int
    buried_ms: int
    #: What could not be decoded, as it came.
    raw: bytes = b""

    @property
    def can_go_back(self) -> bool:
        """Tell whether it is a message, which can be redriven."""
        return not self.message.error


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadPage:
    """A page of dead letters, newest first."""

    #: How many there are in all.
    total: int
    letters: Sequence[DeadLetterView]
    has_newer: bool
    has_older: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadCount:
    """How many dead letters there are up to one of them."""

    #: The newest of them: what is buried later does not belong to the count. Empty when there is none.
    until: str
    count: int
    #: There are so many newer ones that `count` is an upper bound.
    at_most: bool


def page(name: str, *, limit: int, before: str = "", after: str = "") -> DeadPage:
    """Return up to `limit` dead letters: the newest, or those next to an entry.

    Raises:
        UnknownQueue: it is not configured.
        StoreError: Redis is away.
    """
    letters = _dead(name)
    # One more than asked for tells whether there are more.
    if after and is_entry(after):
        found = letters.oldest(limit=limit + 1, after=after)
        some = [_listed(name, fields) for fields in reversed(found.letters[:limit])]
        return DeadPage(total=found.total, letters=some, has_newer=len(found.letters) > limit, has_older=bool(some))
    before = before if is_entry(before) else ""
    found = letters.newest(limit=limit + 1, before=before)
    some = [_listed(name, fields) for fields in found.letters[:limit]]
    return DeadPage(total=found.total, letters=some, has_newer=bool(before), has_older=len(found.letters) > limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadGroup:
    """Dead letters of one name that failed with the same error."""

    name: str
    #: The error's class; empty when it has none.
    error: str
    count: int
    newest_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadGroups:
    """The newest dead letters, counted by name and error, the most first."""

    groups: Sequence[DeadGroup]
    counted: int
    #: There are no older ones.
    is_all: bool


def groups(name: str) -> DeadGroups:
    """Count the newest dead letters by name and error."""
    letters, before, counted, ended = _dead(name), "", 0, False
    deadline = time.monotonic() + SECONDS
    found: dict[tuple[str, str], list[int]] = {}
    while not ended and counted < MAX_GROUPED and time.monotonic() < deadline:
        batch = letters.newest(limit=BATCH, before=before, max_bytes=256).letters
        for fields in batch:
            kind = text_of(fields.values.get(b"type")), error_name(text_of(fields.values.get(b"deaderror")))
            found.setdefault(kind, [0, _buried_ms(fields)])[0] += 1
        counted += len(batch)
        ended = len(batch) < BATCH
        before = batch[-1].entry if batch else before
    some = [
        DeadGroup(name=kind, error=error, count=count, newest_ms=newest)
        for (kind, error), (count, newest) in found.items()
    ]
    return DeadGroups(groups=sorted(some, key=lambda group: -group.count), counted=counted, is_all=ended)


def matching(name: str, wanted: Filter, *, after: str, until: str) -> Iterator[tuple[str, list[str]]]:
    """Yield, oldest first, how far it has looked among the dead letters up to `until`, and the entries wanted there.

    Data too long for a page of dead letters is not looked at: a key is then not known, and does not fit.
    """
    letters = _dead(name)
    if not wanted:
        for entries in letters.entries(after=after, until=until):
            yield entries[-1], entries
        return
    while found := letters.oldest(limit=BATCH, after=after, until=until).letters:
        after = found[-1].entry
        views = [_listed(name, fields) for fields in found]
        yield after, [view.entry for view in views if wanted.takes(view.message, view.error)]


def every(name: str) -> Iterator[DeadLetterView]:
    """Yield all dead letters whole, oldest first."""
    letters, after = _dead(name), ""
    while found := letters.oldest(limit=WHOLE, after=after, max_bytes=MAX_ENTRY_BYTES).letters:
        for fields in found:
            values = {key: value for key, value in fields.values.items() if isinstance(value, bytes)}
            yield _whole(letter_of(name, fields.entry, values))
        after = found[-1].entry


def get(name: str, entry: str) -> DeadLetterView | None:
    """Return a dead letter whole, or None when it is no longer there."""
    letter = _dead(name).get(entry)
    return None if letter is None else _whole(letter)


def _whole(letter: DeadLetter) -> DeadLetterView:
    if letter.message is not None:
        message = view_of(letter.message, size=len(dumps(letter.message.data)))
    else:
        message = MessageView(id=letter.id, size=len(letter.raw), error=redact_text(letter.error) or "no message")
    return DeadLetterView(
        entry=letter.entry,
        message=message,
        reason=letter.reason,
        error=redact_text(letter.error),
        traceback=redact_text(letter.traceback),
        attempts=letter.attempts,
        buried_ms=letter.buried_ms,
        raw=letter.raw,
    )


def find(name: str, message_id: str) -> str | None:
    """Return the entry under which the message with an id is buried, or None."""
    return _dead(name).find(message_id.encode())


def labels(name: str, entries: Sequence[str]) -> list[str]:
    """Return the ids of the messages in some dead letters, those of them that are still there."""
    found = _dead(name).some([entry for entry in entries if is_entry(entry)])
    return [text_of(fields.values.get(b"id")) or fields.entry for fields in found]


def count(name: str, *, until: str = "") -> DeadCount:
    """Count the dead letters up to the entry `until`, or up to the newest of now."""
    letters = _dead(name)
    if is_entry(until):
        newer = letters.oldest(limit=MAX_COUNTED, after=until, max_bytes=0)
        return DeadCount(
            until=until,
            count=max(0, newer.total - len(newer.letters)),
            at_most=len(newer.letters) == MAX_COUNTED,
        )
    newest = letters.newest(limit=1, max_bytes=0)
    return DeadCount(until=newest.letters[0].entry if newest.letters else "", count=newest.total, at_most=False)


def _dead(name: str) -> DeadLetters:
    return DeadLetters(get_config().queue(name), Pooled(get_client("inspect")))


def _listed(name: str, fields: Fields) -> DeadLetterView:
    values = fields.values
    body = values.get(b"data", values.get(b"message", values.get(b"deadraw", 0)))
    size = body if isinstance(body, int) else len(body)
    return DeadLetterView(
        entry=fields.entry,
        message=_listed_message(name, fields, size),
        reason=text_of(values.get(b"deadreason")),
        error=redact_text(text_of(values.get(b"deaderror"))),
        traceback="",
        attempts=number_of(values.get(b"deadattempts")) or 0,
        buried_ms=_buried_ms(fields),
    )


def _buried_ms(fields: Fields) -> int:
    return int(fields.entry.partition("-")[0])


def error_name(error: str) -> str:
    """Return the name of an error without its text, which may quote data; empty when there is none."""
    found = _ERROR_NAME.match(error)
    return found[1] if found else ""


def _listed_message(name: str, fields: Fields, size: int) -> MessageView:
    values = fields.values
    message_id = text_of(values.get(b"id")) or fields.entry
    whole: Mapping[bytes, bytes] = {key: value for key, value in values.items() if isinstance(value, bytes)}
    if b"deadraw" in values:
        return MessageView(id=message_id, size=size, error="no message")
    if len(whole) == len(values):
        letter = letter_of(name, fields.entry, whole)
        if letter.message is not None:
            return view_of(letter.message, size=size)
        return MessageView(id=message_id, name=text_of(values.get(b"type")), size=size, error="no message")
    return MessageView(id=message_id, name=text_of(values.get(b"type")), size=size)
