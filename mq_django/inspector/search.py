"""Search the messages of all queues in all states: a query as people write it, and the steps of its search.

A step reads for a bounded time and returns a cursor, from which the next one goes on. Nothing is stored, and nothing
is read while nobody asks for a step.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from typing import Literal, NamedTuple

from django.utils.translation import gettext as _

from mq_django.conf import get_config
from mq_django.core import clock
from mq_django.core.clock import aware
from mq_django.core.filters import Filter, Filterable, unquoted, words
from mq_django.core.jsontext import whole
from mq_django.core.keys import GROUP_SEPARATOR, UNIQUE_PREFIX
from mq_django.core.partitions import public_name
from mq_django.core.texts import escape
from mq_django.errors import ConnectionLost, InvalidFilter, MQError
from mq_django.inspector.message_lists import in_log, messages
from mq_django.inspector.message_views import MessageState, MessageView
from mq_django.inspector.queues import all_configs
from mq_django.inspector.stream_reader import Scanned

# A query: words with a space between, which all must match.

#: The names before a colon. `path=value` and other words are about the data.
TERMS = ("name", "key", "error", "state", "since", "until", "queue", "id")

#: The states in the order of the search: what people look for first, and what is shortest.
STATES: Sequence[MessageState] = ("dead", "pending", "delayed", "unhandled", "parked", "ready", "log", "handled")
#: Those in which messages have no index by id.
SCANNED: Sequence[MessageState] = ("pending", "ready", "log")

#: Why a query cannot be searched for.
Fault = Literal["words", "term", "value", "twice", "state", "queue", "time", "error", "data"]

_TERM = re.compile(r"([a-z]{2,}):(?!//)(.*)", re.DOTALL)
_AGE = re.compile(r"([0-9]{1,6})([smhdw])", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
#: An id that this package has made.
_OURS = re.compile(r"[0-9a-z]{14,24}", re.ASCII)


class Problem(NamedTuple):
    """Why a query cannot be searched for, and the word with the mistake."""

    kind: Fault
    word: str


def problem_sentence(problem: Problem) -> str:
    """Return why a query cannot be searched for, in the current language."""
    sentences: dict[Fault, str] = {
        "words": _("A quotation mark is missing, or there are too many words: %(word)s"),
        "term": _("There is no term %(word)s. Put it in quotation marks to search for this text."),
        "value": _("A value is missing after %(word)s"),
        "twice": _("Only state: and queue: can be given twice, not %(word)s"),
        "state": _(
            "There is no %(word)s: the states are dead, pending, delayed, unhandled, parked, ready, log and handled."
        ),
        "queue": _("There is no queue or topic %(word)s"),
        "time": _("%(word)s is no time: write an age such as 2h or 7d, or a date such as 2026-11-01T06:00."),
        "error": _("Only dead letters have an error, so nothing matches %(word)s with this state."),
        "data": _("%(word)s cannot be searched for: give a path a value, as in customer=C-4242."),
    }
    return sentences[problem.kind] % {"word": escape(problem.word)[:200]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A filter, and the lists that are searched with it."""

    words: Sequence[str]
    where: Filter
    #: Patterns of names of queues and topics; empty: all.
    queues: Sequence[str] = ()
    states: Sequence[MessageState] = STATES
    #: The only word, or the value of `id:`, which may be the id of a message.
    named: str = ""

    @property
    def needs_data(self) -> bool:
        """Return whether its result says what messages contain."""
        where = self.where
        return bool(where.key or where.data or where.error) or self.named.startswith(UNIQUE_PREFIX)

    @property
    def is_id_of_ours(self) -> bool:
        """Return whether it looks like the id of a message."""
        return bool(_OURS.fullmatch(self.named)) and any(character.isdigit() for character in self.named)

    def by_id(self) -> "Query":
        """Return the search for the only word as an id."""
        return replace(self, where=Filter(id=self.named), states=SCANNED)

    def without(self, number: int) -> str:
        """Return the text of the query without one of its words."""
        return " ".join(word for at, word in enumerate(self.words) if at != number)

    def where_in(self, state: MessageState) -> Filter:
        """Return the filter for messages of a state."""
        # In the other states, the indexes have been asked.
        if self.named and self.where.data and state in SCANNED:
            return _OrId(data=self.where.data, or_id=self.named)
        return self.where


@dataclass(frozen=True, slots=True, kw_only=True)
class _OrId(Filter):
    """A filter that also a message with this id matches."""

    or_id: str

    def matches(self, message: Filterable, error: str = "") -> bool:
        return message.id == self.or_id or Filter.matches(self, message, error)


def parse(text: str) -> Query | Problem:
    """Return what a text asks for, or why it cannot be searched for.

    Raises:
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    try:
        found = words(text)
    except InvalidFilter:
        return Problem("words", text)
    terms: dict[str, list[str]] = {}
    data: list[str] = []
    for word in found:
        term = _TERM.fullmatch(word.partition('"')[0]) and _TERM.fullmatch(word)
        if not term:
            data.append(word)
        elif term[1] not in TERMS:
            return Problem("term", word)
        elif not unquoted(term[2]):
            return Problem("value", word)
        else:
            terms.setdefault(term[1], []).append(unquoted(term[2]))
    fault = _fault(terms)
    return fault or _query(found, terms, data)


def _fault(terms: dict[str, list[str]]) -> Problem | None:
    """Return what is wrong with the terms, if something is."""
    for name, values in terms.items():
        if len(values) > 1 and name not in ("state", "queue"):
            return Problem("twice", f"{name}:{values[1]}")
    checks: Mapping[str, Callable[[str], object]] = {
        "time": lambda value: _time(value) is not None,
        "state": lambda value: value in STATES,
        "queue": lambda value: _listings([value], STATES),
    }
    kinds: Mapping[str, Fault] = {"since": "time", "until": "time", "state": "state", "queue": "queue"}
    for name, kind in kinds.items():
        for value in _each(terms, name):
            if not checks[kind](value):
                return Problem(kind, f"{name}:{value}")
    if "error" in terms and "dead" not in (_each(terms, "state") or ["dead"]):
        return Problem("error", f"error:{terms['error'][0]}")
    return None


def _each(terms: dict[str, list[str]], name: str) -> list[str]:
    return [each for value in terms.get(name, ()) for each in value.split(",") if each]


def _query(found: list[str], terms: dict[str, list[str]], data: list[str]) -> Query | Problem:
    one = {name: values[0] for name, values in terms.items()}
    since, until = one.get("since"), one.get("until")
    try:
        where = Filter(
            id=one.get("id", ""),
            name=one.get("name", ""),
            key=one.get("key", ""),
            error=one.get("error", ""),
            data=" ".join(data),
            since_ms=None if since is None else _time(since),
            until_ms=None if until is None else _time(until),
        )
    except InvalidFilter:
        return Problem("data", " ".join(data))
    states: Sequence[MessageState] = [state for state in STATES if state in (_each(terms, "state") or STATES)]
    if where.error:
        states = ["dead"]
    elif where == Filter(id=where.id) and where.id:
        states = [state for state in states if state in SCANNED]
    is_word = len(found) == 1 and bool(data) and "=" not in found[0]
    named = unquoted(found[0]) if is_word else where.id
    return Query(words=found, where=where, queues=_each(terms, "queue"), states=states, named=named)


def _time(value: str) -> int | None:
    """Return a date, a time or an age such as 2d in ms since 1970; None for anything else."""
    if age := _AGE.fullmatch(value):
        return clock.now_ms() - (whole(age[1]) or 0) * _UNITS[age[2]] * 1000
    try:
        return round(aware(datetime.fromisoformat(value)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


# The steps.

#: The maximum number of messages that a step returns.
LIMIT = 50


class Listing(NamedTuple):
    """One list of messages that is searched."""

    state: MessageState
    #: A queue, a partition or a group; for the state "log" a topic.
    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result of a step."""

    found: Sequence[tuple[Listing, MessageView]]
    scanned: int
    #: The next step goes on from it; empty at the end.
    after: str
    #: How many listings the search is done with, of how many.
    done: int
    total: int
    #: How many listings this step could not read.
    failed: int
    #: The listing where the next step goes on.
    listing: Listing | None
    errors: dict[str, MQError] = field(default_factory=dict)


def step(query: Query, after: str = "", *, limit: int = LIMIT, seconds: float) -> Step:
    """Search for a bounded time from a cursor on. A listing that cannot be read has an error, and the others go on.

    Raises:
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    listings, deadline = _listings(query.queues, query.states), time.monotonic() + seconds
    at, inner = _position(after, listings)
    found: list[tuple[Listing, MessageView]] = []
    errors: dict[str, MQError] = {}
    away: dict[str, ConnectionLost] = {}
    scanned, failed = 0, 0
    while at < len(listings) and len(found) < limit:
        listing = listings[at]
        read = _read(query, listing, inner, limit - len(found), errors, away)
        if read is None:
            read, failed = Scanned([], 0, ""), failed + 1
        found += [(listing, view) for view in read.rows]
        scanned, inner = scanned + read.scanned, read.after
        at += not inner
        if time.monotonic() > deadline:
            break
    next_one = listings[at] if at < len(listings) else None
    onward = "" if next_one is None else f"{at} {next_one.state} {next_one.queue} {inner}"
    return Step(
        found=found,
        scanned=scanned,
        after=onward,
        done=at,
        total=len(listings),
        failed=failed,
        listing=next_one,
        errors=errors,
    )


def _read(
    query: Query, listing: Listing, after: str, limit: int, errors: dict[str, MQError], away: dict[str, ConnectionLost]
) -> Scanned[MessageView] | None:
    """Read a part of a listing; None if it cannot be read. One whose server was just away is not tried."""
    where, config = query.where_in(listing.state), get_config()
    try:
        if listing.state == "log":
            connection, read = config.topic(listing.queue).connection, partial(in_log, listing.queue)
        else:
            connection = config.queue(listing.queue).connection
            read = partial(messages, listing.queue, listing.state, with_log=False)
        if connection in away:
            raise away[connection]
        return read(where=where, after=after, limit=limit)
    except MQError as error:
        errors[listing.queue] = error
        if isinstance(error, ConnectionLost):
            away[connection] = error
        return None


def _listings(patterns: Sequence[str], states: Sequence[MessageState]) -> list[Listing]:
    """Return the listings in these states of the queues and topics whose names match, in the order of the search."""
    queues = [config for config in all_configs() if _is_chosen(config.name, patterns)]
    topics = [name for name in sorted(get_config().topics) if _is_chosen(name, patterns)]
    return [
        Listing(state, name)
        for state in states
        for name in (
            topics
            if state == "log"
            # Without HISTORY there is none.
            else [config.name for config in queues if state != "handled" or config.history is not None]
        )
    ]


def _is_chosen(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a queue, its whole queue or its topic is named. Without a pattern all are."""
    whole_name = public_name(name)
    names = (name, whole_name, whole_name.partition(GROUP_SEPARATOR)[0])
    return not patterns or any(fnmatchcase(each, pattern) for each in names for pattern in patterns)


def _position(cursor: str, listings: Sequence[Listing]) -> tuple[int, str]:
    """Return where a search goes on: the number of a listing, and the cursor in it. The beginning for anything else."""
    number, _separator, rest = cursor.partition(" ")
    state, _separator, named = rest.partition(" ")
    queue, _separator, inner = named.rpartition(" ")
    at = whole(number)
    if at is None:
        return 0, ""
    for index in (at, *range(len(listings))):
        if index < len(listings) and listings[index] == (state, queue):
            return index, inner
    # It is not configured any more.
    return min(at, len(listings)), ""


__all__ = ["Listing", "Problem", "Query", "Step", "parse", "problem_sentence", "step"]
