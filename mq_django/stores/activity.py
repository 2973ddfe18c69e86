"""Activity: who did what to queues and when, in one stream of the namespace that keeps the latest.

An operation is decorated with `recorded()`, wherever it is defined: pages, `mq` and code of projects call the same one,
so none of them writes entries itself. It is recorded after it was done, as far as possible: an operation never fails
because it cannot be recorded.
"""

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from inspect import Signature, signature
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, get_args

from mq_django.conf import get_config
from mq_django.core.filters import Filter
from mq_django.core.jsontext import LAST_MS, dumps, loads, whole
from mq_django.core.keys import activity_key
from mq_django.core.logs import get_logger
from mq_django.core.message_format import entry_ms
from mq_django.core.partitions import public_name
from mq_django.core.redaction import redact_forms
from mq_django.core.running_handler import running
from mq_django.core.texts import class_name, escape, repr_of, truncate
from mq_django.errors import ConnectionLost, DecodeError
from mq_django.transport.connections import open_transport
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import reply_or_raise

logger = get_logger(__name__)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

#: Entries that are kept, about.
MAX_KEPT = 10_000

#: The most characters of a text, bytes of the names of queues, and things that an entry names.
MAX_TEXT, MAX_QUEUES, MAX_NAMED = 500, 8192, 20

#: From where something was done: a page, the command, other code, or by consumers for a job.
Source = Literal["admin", "mq", "code", "consumer"]

#: The operation, in the words of buttons and commands.
Verb = Literal[
    "pause",
    "resume",
    "hold",
    "end hold",
    "open breaker",
    "change limits",
    "mute",
    "unmute",
    "publish",
    "cancel",
    "purge",
    "redrive",
    "move",
    "delete",
    "resubmit",
    "cancel job",
    "finish job",
    "skip message",
    "quiet",
    "stop",
    "seek",
    "replay",
    "unsubscribe",
    "repartition",
    "create schedule",
    "change schedule",
    "pause schedule",
    "resume schedule",
    "skip tick",
    "unskip tick",
    "fire schedule",
    "override schedule",
    "restore schedule",
    "delete schedule",
    "forget schedule",
    "cancel run",
    "retry run",
    "skip step",
    "repair run",
    "retry outbox",
    "discard outbox",
    "renew outbox",
    "republish outbox",
    "forget outbox",
]
VERBS: tuple[Verb, ...] = get_args(Verb)

# The actor of what is recorded.


class Actor(NamedTuple):
    """The name of who does something, and from where it is done."""

    who: str
    source: Source


_actor: ContextVar[Actor | None] = ContextVar("mq_django_actor", default=None)


@contextmanager
def acting(who: str, source: Source) -> Iterator[None]:
    """Let everything inside be recorded as done by somebody."""
    token = _actor.set(Actor(who, source))
    try:
        yield
    finally:
        _actor.reset(token)


def _acts(given: str) -> Actor:
    """Return who acts: who was set, else who was named, else this process, with the handler that it runs."""
    if (actor := _actor.get()) is not None:
        return actor
    handler = running.get()
    process = f"{socket.gethostname()}:{os.getpid()}"
    return Actor(given or (process if handler is None else f"{handler.delivery.message.name}, {process}"), "code")


# Record what was done.


class Effect(NamedTuple):
    """The result of an operation, for its entry."""

    #: How much was changed; 0: nothing, and there is no entry.
    done: int
    #: More about it, such as "2 missing".
    result: str = ""
    #: Ids of messages and the like, if they are known only now.
    about: Sequence[str] = ()
    queues: Sequence[str] = ()
    job: str = ""
    #: What is needed to undo it.
    undo: Mapping[str, Any] = {}
    #: Only a part was done.
    error: str = ""


#: The arguments of a call by name, with defaults.
Given = Mapping[str, Any]

_note: ContextVar["_Note | None"] = ContextVar("mq_django_note", default=None)


def for_undo(values: Mapping[str, Any]) -> None:
    """Keep what was there before with the entry of the operation that runs, so that it can be undone."""
    if (note := _note.get()) is not None:
        note.undo = values


def counted(_: Given, result: Any) -> Effect:
    """Tell the result of an operation that returns whether, or how often, it has changed something, or an id."""
    if isinstance(result, str):
        return Effect(1, about=[result])
    return Effect(result if isinstance(result, int) else 1)


def recorded(
    verb: Verb | Callable[[Given], Verb],
    *,
    queue: str | Callable[[Given], str] = "name",
    about: str | Callable[[Given], Sequence[str]] = "",
    by: str = "who",
    effect: Callable[[Given, Any], Effect] = counted,
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Let calls of an operation be recorded, unless it is a part of another one that is.

    Args:
        verb: what it does, or a function of the arguments.
        queue: the parameter with the queue, or a function of the arguments; "" without one.
        about: the parameter with what it is done to, or a function of the arguments, which is called before.
        by: the parameter with who does it; "" without one.
        effect: returns what the entry says about the result.
    """

    def decorate(operation: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        parameters = signature(operation)

        @wraps(operation)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            if _note.get() is not None:
                return operation(*args, **kwargs)
            note = _Note(verb, queue, about, by)
            token = _note.set(note)
            try:
                note.begin(parameters, args, kwargs)
                result = operation(*args, **kwargs)
            except ConnectionLost as error:
                # It may have been done. Without Redis there is no entry either, and the caller gets the error.
                with suppress(Exception):
                    note.write(Effect(1, error=class_name(type(error))))
                raise
            else:
                note.end(effect, result)
                return result
            finally:
                _note.reset(token)

        call.records = verb  # type: ignore[attr-defined]
        return call

    return decorate


@dataclass(slots=True)
class _Note:
    """The entry of one call. If something goes wrong with it, that is logged after the call."""

    verb: Verb | Callable[[Given], Verb]
    queue: str | Callable[[Given], str]
    about: str | Callable[[Given], Sequence[str]]
    by: str
    given: Given = field(default_factory=dict)
    actor: Actor = Actor("", "code")
    named: Sequence[str] = ()
    undo: Mapping[str, Any] = field(default_factory=dict)
    #: Why it cannot be written. Wrong arguments end the call, too, with an error of its own.
    fault: Exception | None = None

    def begin(self, parameters: Signature, args: tuple[Any, ...], kwargs: Given) -> None:
        """Note what is known before: who does it, and to what."""
        try:
            bound = parameters.bind(*args, **kwargs)
            bound.apply_defaults()
            self.given = bound.arguments
            by = self.given.get(self.by)
            self.actor = _acts(by if isinstance(by, str) else "")
            self.named = _listed(self.about(self.given) if callable(self.about) else self.given.get(self.about))
        except Exception as error:  # noqa: BLE001 - the call is made all the same
            self.fault = error

    def end(self, effect: Callable[[Given, Any], Effect], result: Any) -> None:
        """Record the result, if something was changed."""
        with attempt():
            if self.fault is not None:
                raise self.fault
            found = effect(self.given, result)
            if found.done or found.error:
                self.write(found)

    def write(self, found: Effect) -> None:
        """Write the entry. Raises the errors of record()."""
        where = self.given.get("criteria")
        queue = self.queue(self.given) if callable(self.queue) else self.given.get(self.queue)
        about = {
            **found._asdict(),
            "undo": found.undo or self.undo,
            "verb": self.verb(self.given) if callable(self.verb) else self.verb,
            "about": _listed(found.about) or self.named,
            "where": where.as_dict() if isinstance(where, Filter) else {},
            "reason": self.given.get("reason") or "",
            "target": self.given.get("target") or "",
        }
        record(self.actor, found.queues or ([str(queue)] if queue else ()), about)


@contextmanager
def attempt() -> Iterator[None]:
    """Log what goes wrong with an entry."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - what was done is done, whatever is wrong with its entry
        logger.warning("An operation could not be recorded in the activity: %s", error)


def _listed(named: Any) -> list[str]:
    """Return the first of the things that an operation is about, as texts."""
    is_several = isinstance(named, list | tuple | set | frozenset)
    found = [*named] if is_several else [] if named is None else [named]
    texts = [each for each in map(_as_text, found) if each]
    return [*texts[:MAX_NAMED], *(["…"] if len(texts) > MAX_NAMED else [])]


def _as_text(named: object) -> str:
    if isinstance(named, bytes):
        return named.decode(errors="backslashreplace")
    # Anything may be given by mistake: an operation says so itself.
    return str(named) if isinstance(named, str | int) else repr_of(named)


def record(actor: Actor, queues: Sequence[str], about: Mapping[str, Any]) -> None:
    """Write an entry, with texts that are bounded, printable and without secrets.

    Raises:
        StoreError: Redis cannot be reached or refused.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    names, more = _fitting([*dict.fromkeys(map(public_name, queues))])
    fields: dict[str, Argument] = {"verb": about["verb"], "who": _text(actor.who), "source": actor.source}
    fields |= {name: _text(str(about.get(name, ""))) for name in ("reason", "result", "target", "job", "error")}
    fields |= {"done": f"{about.get('done', 1):d}", "more": str(more or "")}
    where = {name: _text(value) if isinstance(value, str) else value for name, value in about.get("where", {}).items()}
    values = {"queues": names, "about": [*map(_text, about.get("about", ()))], "where": where}
    values["undo"] = about.get("undo") or {}
    fields |= {name: dumps(value) for name, value in values.items() if value}
    flat = [part for pair in fields.items() if pair[1] != "" for part in pair]
    command: Command = ("XADD", activity_key(get_config().namespace), "MAXLEN", "~", MAX_KEPT, "*", *flat)
    open_transport("inspect", "").ask(command)


def _fitting(names: list[str]) -> tuple[list[str], int]:
    """Return as many names as an entry has room for, and how many more there are."""
    left, count = MAX_QUEUES, 0
    for name in names:
        left -= len(name) + 3
        if left < 0:
            break
        count += 1
    return names[:count], len(names) - count


def _text(text: str) -> str:
    return truncate(escape(redact_forms(text[: 4 * MAX_TEXT])), MAX_TEXT)


# Read it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something that was done to queues, by a person or by code."""

    #: Names it, and is later for later ones.
    id: str
    #: When, in ms since 1970, by the clock of Redis.
    ms: int
    #: The operation, such as "pause"; a later version may know more.
    verb: str
    who: str
    #: "admin", "mq" or "code"; "consumer" for the end of a job.
    source: str
    queues: Sequence[str]
    #: How many queues are not named.
    more: int
    #: Ids of messages, schedules, runs or consumers; the last one is "…" if there were more.
    about: Sequence[str]
    #: The filter of what was changed, as JSON values.
    where: Mapping[str, Any]
    #: How many messages, queues or others were changed.
    done: int
    #: More about the result, such as "2 missing".
    result: str
    #: The queue to which messages were moved.
    target: str
    reason: str
    #: The token of the background job that it has begun or ended; see jobs().
    job: str
    #: The class of the error that has interrupted it: it is not known how much was done.
    error: str
    #: What is needed to undo it.
    undo: Mapping[str, Any] = field(repr=False)


def read_command(namespace: str, *, first: str = "-", last: str = "+", count: int) -> Command:
    """Return the command that reads entries, the newest first: see actions_in()."""
    return ("XREVRANGE", activity_key(namespace), last, first, "COUNT", count)


def actions_in(reply: object) -> Iterator[tuple[str, Action | None]]:
    """Yield the id and what was done of each entry in a reply; None for an entry that another program has written.

    Raises:
        StoreError: Redis refused.
    """
    for entry, flat in reply_or_raise(reply):
        yield entry.decode(), _action(entry, flat)


def _action(entry: bytes, flat: Sequence[bytes] | None) -> Action | None:
    found = dict(zip((flat or ())[::2], (flat or ())[1::2], strict=False))
    texts = {
        name: escape(found.get(name.encode(), b"").decode(errors="backslashreplace"))[: 2 * MAX_TEXT]
        for name in ("verb", "who", "source", "result", "target", "reason", "job", "error")
    }
    ms = entry_ms(entry)
    if not texts["verb"] or ms > LAST_MS:
        return None
    queues, about = (_texts(_value(found, name)) for name in ("queues", "about"))
    where, undo = (_value(found, name) for name in ("where", "undo"))
    return Action(
        id=entry.decode(),
        ms=ms,
        queues=queues,
        about=about,
        more=whole(found.get(b"more")) or 0,
        done=whole(found.get(b"done")) or 0,
        where=where if isinstance(where, dict) else {},
        undo=undo if isinstance(undo, dict) else {},
        **texts,
    )


def _value(found: Mapping[bytes, bytes], name: str) -> Any:
    try:
        return loads(found.get(name.encode(), b"null"))
    except DecodeError:
        return None


def _texts(found: Any) -> Sequence[str]:
    return [escape(each) for each in found if isinstance(each, str)] if isinstance(found, list) else []
