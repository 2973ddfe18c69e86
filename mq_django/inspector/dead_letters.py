"""Dead letters, for display, and actions on them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mq_django import registry
from mq_django.conf import QueueConfig, get_config
from mq_django.core.filters import NOTHING, FailureGroup, Filter
from mq_django.core.jsontext import loads, whole
from mq_django.core.keys import STEP_PREFIX
from mq_django.core.message_format import entry_ms
from mq_django.core.messages import Delivery
from mq_django.core.partitions import public_name
from mq_django.core.publication import resubmission
from mq_django.core.redaction import redact_bytes, redact_text, restored
from mq_django.core.texts import repr_of
from mq_django.errors import InvalidFilter, NotSupported, QueueFull, StoreError
from mq_django.inspector.actions import Outcome, add_part, effect_of
from mq_django.inspector.message_views import MessageView, view_of
from mq_django.inspector.queues import require_queue
from mq_django.inspector.stream_reader import Scanned, one_queue, scan
from mq_django.stores import dead_letters
from mq_django.stores.activity import MAX_NAMED, Effect, Given, recorded
from mq_django.stores.moving import REFUSED, Mover
from mq_django.transport.connections import open_transport, open_transports
from mq_django.transport.failures import readable
from mq_django.transport.sessions import Transport, fan_out, reply_or_raise

# The counts of dead letters by name and error, as counted when they were buried.

#: The largest groups are shown, and the others as one. The scripts keep as many, of each partition.
MAX_GROUPS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadGroup:
    """Dead letters of one name that failed with the same error."""

    #: None: the dead letters of all groups beyond MAX_GROUPS.
    group: FailureGroup | None
    count: int
    #: When the last one was buried, in ms since 1970.
    buried_ms: int


def groups(name: str) -> list[DeadGroup]:
    """Return the counts of dead letters by name and error, largest first, as counted when they were buried.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    parts = get_config().queue(name).each_part
    each = groups_of_queues(parts, open_transports("inspect", [part.connection for part in parts]))
    return _added([group for found in each for group in reply_or_raise(found)])


def _added(found: Sequence[DeadGroup]) -> list[DeadGroup]:
    """Return the largest groups, added up over partitions, and at the end all others as one."""
    counts: Counter[FailureGroup | None] = Counter()
    newest: dict[FailureGroup | None, int] = {}
    for each in found:
        counts[each.group] += each.count
        newest[each.group] = max(newest.get(each.group, 0), each.buried_ms)
    groups = [DeadGroup(group=group, count=count, buried_ms=newest[group]) for group, count in counts.items()]
    shown = sorted(groups, key=_largest_first)
    others = shown[MAX_GROUPS:]
    if others:
        rest = sum(each.count for each in others), max(each.buried_ms for each in others)
        shown[MAX_GROUPS:] = [DeadGroup(group=None, count=rest[0], buried_ms=rest[1])]
    return shown


def groups_of_queues(
    configs: Sequence[QueueConfig], transports: Sequence[Transport]
) -> list[list[DeadGroup] | StoreError]:
    """Return the same of several queues, each of which has its transport; an error for one that cannot be read."""
    replies = fan_out(transports, [[("HGETALL", config.keys.dead_groups)] for config in configs])
    return list(map(readable(_groups), replies))


def _groups(replies: Sequence[Any]) -> list[DeadGroup]:
    flat = reply_or_raise(replies[0])
    found = [group for pair in zip(flat[::2], flat[1::2], strict=True) if (group := _group(*pair))]
    return sorted(found, key=_largest_first)


def _largest_first(group: DeadGroup) -> tuple[bool, int, FailureGroup | None]:
    return group.group is None, -group.count, group.group


def _group(field: bytes, value: bytes) -> DeadGroup | None:
    error, separator, name = field.decode(errors="backslashreplace").partition("|")
    numbers = [number for part in value.split(b" ") if (number := whole(part)) is not None]
    if len(numbers) != 2:
        return None
    return DeadGroup(group=FailureGroup(name, error) if separator else None, count=numbers[0], buried_ms=numbers[1])


#: What is done with the entries of dead letters; it returns a word for each.
_Act = Callable[[Sequence[str]], list[str]]

#: Dead letters read at a time with all fields.
WHOLE = 50

#: A value of more bytes than this is left out of a page of dead letters.
MAX_LISTED = 16 * 1024

#: The most newer dead letters that are counted, to compute the number of dead letters up to one of them.
MAX_COUNTED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadCount:
    """The number of dead letters up to one of them, by age."""

    #: The newest counted one: those buried later are not counted. Empty if there is none.
    until: str
    #: An upper bound, if there are more than MAX_COUNTED newer ones.
    count: int


def search_dead_letters(name: str, where: Filter, *, after: str = "", limit: int) -> Scanned[MessageView]:
    """Return the dead letters that match, newest first."""
    dead = _dead(name)

    def read(cursor: str, count: int) -> Iterator[tuple[str, str | None]]:
        while count > 0:
            last = dead_letters.next_to(cursor if dead_letters.is_entry(cursor) else "", "+")
            letters = dead.traits(limit=count, last=last, newest_first=True, data=where.data)
            for letter in letters:
                yield letter.entry, letter.entry if where.matches(letter, letter.error) else None
            # With data they are read in parts.
            count, cursor = (count - len(letters), letters[-1].entry) if letters and where.data else (0, cursor)

    found = scan(read, where, after=after, limit=limit)
    there = dict(_listed(name, found.rows))
    rows = [_view(name, entry, there[entry]) for entry in found.rows if entry in there]
    return Scanned(rows, found.scanned, found.after)


def _listed(name: str, entries: Sequence[str]) -> list[tuple[str, dead_letters.Fields]]:
    """Return the dead letters that still exist, without long values."""
    return _dead(name).each(entries, max_bytes=MAX_LISTED, which="LISTED")


def count_group(name: str, group: FailureGroup) -> int | None:
    """Return the number of dead letters of a group; None if it has no count of its own."""
    return next((found.count for found in groups(name) if found.group == group), None)


def every(name: str, where: Filter = NOTHING) -> Iterator[MessageView]:
    """Yield all dead letters that match with all fields, oldest first."""
    for part in get_config().queue(name).parts:
        yield from every(part.name, where)
    if get_config().queue(name).parts:
        return
    dead, first = _dead(name), "-"
    while found := dead.traits(limit=dead_letters.BATCH, first=first, data=where.data):
        first = dead_letters.next_to(found[-1].entry, "-")
        chosen = [letter.entry for letter in found if where.matches(letter, letter.error)]
        for at in range(0, len(chosen), WHOLE):
            for row in dead.whole(chosen[at : at + WHOLE]):
                yield _view(name, *row, is_whole=True)


def get(name: str, entry: str) -> MessageView | None:
    """Return a dead letter with all fields, or None if it no longer exists."""
    return next((_view(name, *row, is_whole=True) for row in _dead(name).whole([entry])), None)


def find(name: str, message_id: str) -> str | None:
    """Return the entry of the dead letter with a message id, or None."""
    return _dead(name).find([message_id])[0]


def labels(name: str, entries: Sequence[str]) -> list[str]:
    """Return the message ids of the dead letters that still exist."""
    found = _listed(name, [entry for entry in entries if dead_letters.is_entry(entry)])
    return [dead_letters.text_of(fields.get(b"id")) or entry for entry, fields in found]


def count(name: str, *, until: str = "") -> DeadCount:
    """Count the dead letters up to the entry `until`, or up to the newest one.

    Raises:
        InvalidFilter: `until` is not an entry id.
    """
    if parts := get_config().queue(name).parts:
        found = [count(part.name, until=until) for part in parts]
        last = max((each.until for each in found), key=_entry_number)
        return DeadCount(until=last, count=sum(each.count for each in found))
    dead = _dead(name)
    if until and not dead_letters.is_entry(until):
        raise InvalidFilter(f"Not the entry of a dead letter: {repr_of(until, 80)}")
    if until:
        total, newer = dead.read(limit=MAX_COUNTED, first=dead_letters.next_to(until, "-"), max_bytes=0)
        return DeadCount(until=until, count=max(0, total - len(newer)))
    total, newest = dead.read(limit=1, newest_first=True, max_bytes=0)
    return DeadCount(until=newest[0][0] if newest else "", count=total)


def _entry_number(entry: str) -> tuple[int, ...]:
    return tuple(map(int, entry.split("-"))) if entry else ()


def _ids(given: Given) -> list[str]:
    """Return the ids of the first dead letters that an action is about."""
    entries = [given["entry"]] if "entry" in given else [*given["entries"]]
    return [*labels(given["name"], entries[:MAX_NAMED]), *entries[MAX_NAMED:]]


def _resubmitted(_: Given, message_id: str | None) -> Effect:
    return Effect(message_id is not None, f"as message {message_id}")


@recorded("redrive", about=_ids, effect=effect_of)
def redrive(name: str, entries: Sequence[str]) -> Outcome:
    """Put dead letters back into their queue, each at its first attempt.

    Raises:
        UnknownQueue: the queue is not configured.
    """
    return _each(_dead(name).redrive, entries)


@recorded("redrive", about="message_ids", effect=effect_of)
def redrive_messages(name: str, message_ids: Sequence[str]) -> Outcome:
    """Put dead letters back into their queue, each at its first attempt.

    Args:
        name: the queue.
        message_ids: the ids of their messages.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    return _each_message(name, redrive, message_ids)


@recorded("delete", about=_ids, effect=effect_of)
def delete(name: str, entries: Sequence[str]) -> Outcome:
    """Delete dead letters."""
    return _each(_dead(name).delete, entries)


@recorded("delete", about="message_ids", effect=effect_of)
def delete_messages(name: str, message_ids: Sequence[str]) -> Outcome:
    """Delete dead letters by their message ids.

    Args:
        name: the queue.
        message_ids: the ids of their messages.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    return _each_message(name, delete, message_ids)


def _each_message(name: str, act: Callable[[str, Sequence[str]], Outcome], message_ids: Sequence[str]) -> Outcome:
    """Do something with dead letters by their message ids, in the partitions that have them."""
    left, outcome = list(message_ids), Outcome()
    for part in get_config().queue(name).each_part:
        if not left or outcome.error is not None:
            break
        entries = _dead(part.name).find(left)
        found = act(part.name, [entry for entry in entries if entry is not None])
        add_part(outcome, found)
        left = [message_id for message_id, entry in zip(left, entries, strict=True) if entry is None]
    outcome.missing += len(left)
    return outcome


def _each(act: _Act, entries: Sequence[str]) -> Outcome:
    """Do something with dead letters by their entries."""
    known, outcome = _valid(entries)
    for at in range(0, len(known), dead_letters.BATCH):
        try:
            words = Counter(act(known[at : at + dead_letters.BATCH]))
        except StoreError as error:
            outcome.error = error
            break
        outcome.missing += words.pop("MISSING", 0)
        outcome.refused += words.pop("UNDECODABLE", 0)
        outcome.done += words.total()
    return outcome


def _valid(entries: Sequence[str]) -> tuple[list[str], Outcome]:
    """Return those that are entries, each once, and an outcome in which the others are missing."""
    chosen = list(dict.fromkeys(entries))
    known = [entry for entry in chosen if dead_letters.is_entry(entry)]
    return known, Outcome(missing=len(chosen) - len(known))


def _dead(name: str) -> dead_letters.DeadLetters:
    config = one_queue(name)
    return dead_letters.open_dead_letters(config, open_transport("inspect", config.connection))


def _view(name: str, entry: str, fields: dead_letters.Fields, *, is_whole: bool = False) -> MessageView:
    complete = {field: value for field, value in fields.items() if isinstance(value, bytes)}
    found = dead_letters.buried(name, entry, complete) if len(complete) == len(fields) else None
    error, traceback = (
        dead_letters.text_of(fields.get(b"deaderror")),
        dead_letters.text_of(fields.get(b"deadtraceback")),
    )
    about: dict[str, Any] = {
        "state": "dead",
        "ref": entry,
        "at_ms": entry_ms(entry.encode()),
        "reason": dead_letters.text_of(fields.get(b"deadreason")),
        "error": redact_text(error),
        "traceback": redact_text(traceback),
        "tries": whole(fields.get(b"deadattempts")) or 0,
    }
    if isinstance(found, Delivery):
        history, size = dead_letters.text_of(fields.get(b"deadstory")), len(found.data_text)
        return view_of(found.message, size=size, history=history, failure=(error, traceback), **about)
    # It is too long for a page, or not valid.
    body = found or fields.get(b"data", fields.get(b"message", fields.get(b"deadraw", 0)))
    is_broken = found is not None or b"deadraw" in fields
    return MessageView(
        id=dead_letters.text_of(fields.get(b"id")) or entry,
        name=dead_letters.text_of(fields.get(b"type")),
        size=body if isinstance(body, int) else len(body),
        problem=(redact_text(error) or "no message") if is_broken else "",
        raw=redact_bytes(found) if is_whole and found is not None else b"",
        **about,
    )


@recorded("resubmit", about="message_id", effect=_resubmitted)
def resubmit_message(name: str, message_id: str, written: str) -> str | None:
    """Put a dead letter back into its queue with changed data, as a new message.

    Secrets that were replaced may stay so: the placeholders stand for the values that the dead letter has.

    Args:
        name: the queue.
        message_id: the id of its message.
        written: the new data as JSON.

    Raises:
        DecodeError: it is not JSON.
        InvalidMessage, MessageTooLarge: the queue does not take it, or a placeholder is where no secret was.
        NotSupported: the queue cannot.
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    for part in get_config().queue(name).partitions_for_id(message_id):
        entry = find(part.name, message_id)
        if entry is not None:
            return resubmit(part.name, entry, written)
    return None


@recorded("resubmit", about=_ids, effect=_resubmitted)
def resubmit(name: str, entry: str, written: str) -> str | None:
    """Put a dead letter back into its queue with changed data, as a new message. Returns its id; None if it is gone.

    `written` is the JSON text of the new data. Placeholders that stand for secrets are replaced by these.

    Raises:
        DecodeError: it is not JSON.
        InvalidMessage: it is too long for the queue, or has a placeholder in a place without a secret.
        StoreError: cannot reach Redis.
    """
    config, letters = one_queue(name), _dead(name)
    found = next((dead_letters.buried(name, *letter) for letter in letters.whole([entry])), None)
    if not isinstance(found, Delivery):
        return None
    data = restored(loads(written.encode(errors="surrogatepass")), found.message.data)
    made = resubmission(config, found.message, data)
    if found.message.id.startswith(STEP_PREFIX):
        # Its run knows the step by this id.
        made = made._replace(message=made.message._replace(id=found.message.id))
    done = letters.resubmit(entry, message_id=made.message.id, text=letters.written(made))
    return made.message.id if done == "REDRIVEN" else None


# Move dead letters to another queue.


def targets(name: str) -> list[str]:
    """Return the queues, and groups of topics, to which the messages of one can be moved."""
    config = get_config()
    groups = [group for topic in config.topics for group in registry.groups(topic)]
    return sorted(found for found in {*config.queues, *groups} - {name} if config.queue(found).partitions == 1)


def check_target(name: str, target: str) -> QueueConfig:
    """Return the options of the queue to which messages of `name` are to be moved.

    Raises:
        UnknownQueue: it is not configured, or there is no such group of a topic.
        NotSupported: it is the same queue, or a topic.
        StoreError: cannot reach Redis.
    """
    config = get_config()
    if public_name(target) == public_name(name):
        raise NotSupported(f"The messages are in queue {name!r} already: if they are dead letters, redrive them")
    if target in config.topics:
        raise NotSupported(f"{repr_of(target)} is a topic: messages are moved to a queue, or to one group of a topic")
    require_queue(target)
    found = config.queue(target)
    if found.partitions > 1:
        raise NotSupported(f"{repr_of(target)} has or is a partition: messages are not moved to these")
    return found


@recorded("move", about=_ids, effect=effect_of)
def move(name: str, target: str, entries: Sequence[str]) -> Outcome:
    """Move dead letters to another queue, each at its first attempt.

    A message keeps its id, name, data, key, headers, time of publication and the history of its attempts, and the
    priority and the unique key where the format of the target has them. It no longer expires. Those that the target
    refuses stay where they are: they are too long for it, or another message has the id in RSMQ's format.

    If it is interrupted, it can be repeated within a week: no message is lost, and none is in the target twice.

    Args:
        name: the queue, or the group of a topic as `topic:group`.
        target: the queue that gets them, or the group of a topic. It may have another format and be on another server.
        entries: the entries of the dead letters.

    Raises:
        UnknownQueue: a queue is not configured.
        NotSupported: dead letters cannot be moved there.
        StoreError: cannot reach Redis to look for the group of a topic.
    """
    source, into = one_queue(name), check_target(name, target)
    mover = Mover(source, open_transport("inspect", source.connection), into)
    known, outcome = _valid(entries)
    move_letters(mover, known, into, outcome)
    outcome.without_handler = without_handler(target, mover.names)
    return outcome


@recorded("move", about="message_ids", effect=effect_of)
def move_messages(name: str, target: str, message_ids: Sequence[str]) -> Outcome:
    """Move dead letters to another queue, each at its first attempt; a message keeps all that the other can hold.

    Args:
        name: the queue.
        target: the queue that gets them, or the group of a topic.
        message_ids: the ids of their messages.

    Raises:
        UnknownQueue: a queue is not configured.
        NotSupported: dead letters cannot be moved there.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    check_target(name, target)
    return _each_message(name, lambda part, entries: move(part, target, entries), [*dict.fromkeys(message_ids)])


def without_handler(target: str, names: Iterable[str]) -> list[str]:
    """Return the names, of some, for which no handler of a queue is registered in this project.

    It is empty if other programs handle the queue.
    """
    if get_config().queue(target).external:
        return []
    return sorted(name for name in set(names) if registry.find(target, name) is None)


def move_letters(mover: Mover, entries: Sequence[str], target: QueueConfig, outcome: Outcome) -> None:
    """Move dead letters until all are moved, or an error ends it."""
    while entries and outcome.error is None:
        try:
            words, is_full = mover.write(entries[:100])
            mover.remove(entries, words)
        except StoreError as error:
            outcome.error = error
            return
        outcome.missing += words.count("MISSING")
        outcome.refused += sum(word in REFUSED for word in words)
        outcome.done += sum(word not in REFUSED and word != "MISSING" for word in words)
        if is_full:
            outcome.error = is_at_depth(target)
        entries = entries[len(words) :]


def is_at_depth(target: QueueConfig) -> QueueFull:
    """Return the error of a queue that takes no more messages."""
    return QueueFull(f"Queue {target.name!r} is at its MAX_DEPTH of {target.max_depth}")
