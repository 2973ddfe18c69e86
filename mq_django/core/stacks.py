"""The stacks of running handlers, as a consumer answers a request for them: code and lines, and no values.

A consumer replaces secrets before it writes its answer, and a reader replaces them again: any program may have written
what it reads.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from mq_django.core.jsontext import LAST_MS, dumps, object_in, whole
from mq_django.core.redaction import redact_forms, redact_text
from mq_django.core.texts import escape, truncate

#: What a stack is of: a thread or a coroutine that runs a handler; another task that runs on their event loop; or what
#: a coroutine runs in another thread, by `sync_to_async`. It is unknown which handler the last two belong to.
StackKind = Literal["thread", "coroutine", "task", "sync"]
KINDS: tuple[StackKind, ...] = ("thread", "coroutine", "task", "sync")

#: Maximum frames of a stack, the innermost; maximum stacks; maximum size of an answer, in bytes.
MAX_FRAMES, MAX_STACKS, MAX_BYTES = 100, 1000, 256 * 1024
#: The most characters of a path or a name, and of a line of code.
MAX_NAME, MAX_CODE = 255, 300


class Frame(NamedTuple):
    """A call in a stack."""

    #: Relative to the project, to the installed packages, or to the standard library.
    file: str
    #: 0: unknown.
    line: int
    function: str
    #: The line of the source; empty if it cannot be read.
    code: str = ""


class Stack(NamedTuple):
    """Where a handler is now."""

    kind: StackKind
    #: Its message, and for how long it has run in ms; empty and 0 if that is not known.
    queue: str
    id: str
    name: str
    ms: int
    #: The innermost call is the last one.
    frames: Sequence[Frame]
    #: Outer frames that are left out.
    left_out: int = 0
    #: Further tasks that a coroutine awaits at the same time: `frames` follows one of them.
    others: int = 0


class Stacks(NamedTuple):
    """The answer of a consumer."""

    #: Longest running first; stacks without a message last.
    stacks: Sequence[Stack]
    #: Stacks that are left out.
    more: int = 0

    @property
    def handlers(self) -> int:
        """Return how many of them belong to handlers."""
        return sum(stack.kind in ("thread", "coroutine") for stack in self.stacks)


def redacted(frame: Frame) -> Frame:
    """Return a frame as it may be shown: shortened, without secrets and without unprintable characters."""
    return Frame(
        truncate(redact_forms(escape(frame.file)), MAX_NAME),
        frame.line,
        truncate(redact_forms(escape(frame.function)), MAX_NAME),
        truncate(redact_text(escape(frame.code.strip()[: MAX_CODE * 2])), MAX_CODE),
    )


def stacks_text(stacks: Sequence[Stack]) -> bytes:
    """Return the JSON text of an answer, with as many of the innermost frames of each stack as fit into MAX_BYTES."""
    sent, most = list(stacks[:MAX_STACKS]), MAX_FRAMES
    while True:
        text = dumps({"stacks": [_fields(stack, most) for stack in sent], "more": len(stacks) - len(sent)})
        if len(text) <= MAX_BYTES or not sent:
            return text
        if most > 1:
            most //= 2
        else:
            sent = sent[: len(sent) // 2]


def _fields(stack: Stack, most: int) -> dict[str, Any]:
    frames = stack.frames[-most:]
    return {
        "kind": stack.kind,
        "queue": stack.queue,
        "id": stack.id,
        "name": stack.name,
        "ms": stack.ms,
        "frames": [list(frame) for frame in frames],
        "left_out": stack.left_out + len(stack.frames) - len(frames),
        "others": stack.others,
    }


def read_stacks(text: object) -> Stacks | None:
    """Return the stacks in the text of an answer, None if it is not valid. A stack that is not valid is left out."""
    found = object_in(text) if isinstance(text, bytes) and len(text) <= MAX_BYTES else {}
    if not isinstance(found.get("stacks"), list):
        return None
    return Stacks(list(_stacks(found["stacks"][:MAX_STACKS])), _count(found.get("more")))


def _stacks(found: Iterable[Any]) -> Iterable[Stack]:
    for item in found:
        kind = next((kind for kind in KINDS if isinstance(item, dict) and item.get("kind") == kind), None)
        if kind is None or not isinstance(item.get("frames"), list):
            continue
        queue, message_id, name = (_text(item.get(field)) for field in ("queue", "id", "name"))
        yield Stack(
            kind,
            *(queue, message_id, name),
            ms=whole(item.get("ms"), LAST_MS) or 0,
            frames=list(_frames(item["frames"][-MAX_FRAMES:])),
            left_out=_count(item.get("left_out")),
            others=_count(item.get("others")),
        )


def _frames(found: Iterable[Any]) -> Iterable[Frame]:
    for item in found:
        match item:
            case [str(file), int(line), str(function), str(code)]:
                yield redacted(Frame(file, _count(line), function, code))


def _text(value: object) -> str:
    return truncate(redact_forms(value), MAX_NAME) if isinstance(value, str) else ""


def _count(value: object) -> int:
    return 0 if isinstance(value, bool) else whole(value) or 0
