"""Dead letters as people see them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mq_django.conf import get_config
from mq_django.core.filters import NOTHING, FailureGroup, Filter
from mq_django.core.messages import DeadLetter
from mq_django.core.numbers import whole
from mq_django.core.redaction import redact_bytes, redact_text
from mq_django.core.wire import entry_ms
from mq_django.errors import InvalidFilter
from mq_django.inspector.attempts import attempts_of
from mq_django.inspector.messages import MessageView, view_of
from mq_django.inspector.scan import Scanned, scan
from mq_django.stores.dead_letter_queue import DeadLetters, Fields, Letter, is_entry, letter_of, text_of
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled

#: Dead letters that are read at a time; whole ones are fewer.
BATCH, WHOLE = 500, 50

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
    #: What could not be decoded, as it came, but with its secrets replaced.
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

    #: None: all those for which there was no room, beyond 1000 groups.
    group: FailureGroup | None
    count: int
    #: When one was buried last: ms since 1970.
    buried_ms: int


def groups(name: str) -> list[DeadGroup]:
    """Return how many dead letters there are by name and error, the most first, as was counted at their burying.

    Raises:
        UnknownQueue: it is not configured.
        StoreError: Redis is away.
    """
    found = [DeadGroup(group=group, count=count, buried_ms=ms) for group, count, ms in _dead(name).groups()]
    return sorted(found, key=lambda group: (group.group is None, -group.count, group.group))


def look_among(name: str, wanted: Filter, *, after: str = "", limit: int) -> Scanned[DeadLetterView]:
    """Return the dead letters that are wanted, newest first."""
    letters = _dead(name)

    def read(cursor: str, count: int) -> list[tuple[str, Letter]]:
        before = cursor if is_entry(cursor) else ""
        return [(letter.entry, letter) for letter in letters.traits(limit=count, before=before)]

    found = scan(read, lambda letter: wanted.matches(letter, letter.error), after=after, limit=limit)
    there = {fields.entry: fields for fields in letters.some([letter.entry for letter in found.rows])}
    rows = [_listed(name, there[letter.entry]) for letter in found.rows if letter.entry in there]
    return Scanned(rows, found.scanned, found.after)


def count_group(name: str, group: FailureGroup) -> int | None:
    """Return how many dead letters a group has; None when it was not counted apart."""
    return next((found.letters for found in _dead(name).groups() if found.group == group), None)


def every(name: str, wanted: Filter = NOTHING) -> Iterator[DeadLetterView]:
    """Yield all dead letters that are wanted whole, oldest first."""
    letters, after = _dead(name), ""
    while found := letters.traits(limit=BATCH, after=after):
        after = found[-1].entry
        chosen = [letter.entry for letter in found if wanted.matches(letter, letter.error)]
        for at in range(0, len(chosen), WHOLE):
            for letter in letters.get_many(chosen[at : at + WHOLE]):
                yield _whole(letter)


def get(name: str, entry: str) -> DeadLetterView | None:
    """Return a dead letter whole, or None when it is no longer there."""
    letter = _dead(name).get(entry)
    return None if letter is None else _whole(letter)


def _whole(letter: DeadLetter) -> DeadLetterView:
    if letter.message is not None:
        message = view_of(letter.message, size=letter.size)
        last = attempts_of(letter.history, error=letter.error, traceback=letter.traceback)
        message = replace(message, attempts=last)
    else:
        message = MessageView(id=letter.id, size=letter.size, error=redact_text(letter.error) or "no message")
    return DeadLetterView(
        entry=letter.entry,
        message=message,
        reason=letter.reason,
        error=redact_text(letter.error),
        traceback=redact_text(letter.traceback),
        attempts=letter.attempts,
        buried_ms=letter.buried_ms,
        raw=redact_bytes(letter.raw),
    )


def find(name: str, message_id: str) -> str | None:
    """Return the entry under which the message with an id is buried, or None."""
    return _dead(name).find(message_id.encode())


def labels(name: str, entries: Sequence[str]) -> list[str]:
    """Return the ids of the messages in some dead letters, those of them that are still there."""
    found = _dead(name).some([entry for entry in entries if is_entry(entry)])
    return [text_of(fields.values.get(b"id")) or fields.entry for fields in found]


def count(name: str, *, until: str = "") -> DeadCount:
    """Count the dead letters up to the entry `until`, or up to the newest of now.

    Raises:
        InvalidFilter: `until` is no entry.
    """
    letters = _dead(name)
    if until and not is_entry(until):
        raise InvalidFilter(f"Not the entry of a dead letter: {until!r:.80}")
    if until:
        newer = letters.oldest(limit=MAX_COUNTED, after=until, max_bytes=0, which="TRAITS")
        return DeadCount(
            until=until,
            count=max(0, newer.total - len(newer.letters)),
            at_most=len(newer.letters) == MAX_COUNTED,
        )
    newest = letters.newest(limit=1, max_bytes=0, which="TRAITS")
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
        attempts=whole(values.get(b"deadattempts")) or 0,
        buried_ms=entry_ms(fields.entry.encode()),
    )


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
