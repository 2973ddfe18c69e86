"""The path of a message through the modules, from what was recorded."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.trace.program import CONSUMER, ROUNDS
from tests.trace.recorder import BEGIN, CALL, END, REPLY, RETURN, SENT, Event, load

ACTIONS = ("publish", "fetch to ack", "retry", "bury", "redrive")

#: The functions of each module that an action passes, both in the order in which they are passed first.
Modules = dict[str, list[str]]

_ENTRY = re.compile(r"\d{13,}-\d+")


def paths(folder: Path) -> dict[str, Modules]:
    """Return the path of each action: the one that most of its messages took."""
    rounds = json.loads((folder / ROUNDS).read_text())
    consumer = load(folder / CONSUMER)
    found: dict[str, list[list[str]]] = {action: [] for action in ACTIONS}
    for one in rounds["published"]:
        found["publish"].append(_calls(Event(*event) for event in one["events"]))
        arriving, settling = handled(consumer, one["id"])
        if one["kind"] == "ack":
            found["fetch to ack"].append(arriving + settling)
        else:
            found[one["kind"]].append(settling)
    found["redrive"] = [_command(_calls(Event(*event) for event in one["events"])) for one in rounds["redriven"]]
    return {action: most_common(runs) for action, runs in found.items()}


def most_common(runs: Iterable[Sequence[str]]) -> Modules:
    """Return the modules of most runs: a settlement goes with a fetch or alone, as the threads happen to meet."""
    found = [_by_module(run) for run in runs]
    counts = Counter(frozenset(modules) for modules in found)
    usual = max(counts, key=lambda modules: (counts[modules], sorted(modules)))
    return next(modules for modules in found if modules.keys() == usual)


def handled(events: Sequence[Event], message_id: str) -> tuple[list[str], list[str]]:
    """Return the functions from a message's arrival to its handler, and from there to the command that settles it."""
    arrived = _first(events, 0, REPLY, message_id)
    entry = _entry(events[arrived].detail)
    began = _first(events, arrived, BEGIN, message_id)
    ended = _first(events, began, END, message_id)
    settled = _first(events, ended, SENT, entry)
    fetcher, handler, settler = events[arrived].thread, events[began].thread, events[settled].thread
    arriving = [
        *(event for event in _turn(events, arrived, began) if event.thread == fetcher),
        *(event for event in events[arrived:began] if event.thread == handler),
    ]
    settling = [event for event in events[ended:settled] if event.thread in (handler, settler)]
    return [*events[arrived].stack, *_calls(arriving)], [*events[ended].stack, *_calls(settling)]


def _by_module(functions: Sequence[str]) -> Modules:
    found: Modules = {}
    for function in dict.fromkeys(functions):
        module, _, name = function.partition(":")
        found.setdefault(module, []).append(name)
    return found


def _turn(events: Sequence[Event], start: int, end: int) -> Iterator[Event]:
    """Yield what the thread of an event does until it is back in its loop: the next turn is not about the message."""
    depth = len(events[start].stack)
    for event in events[start:end]:
        if event.thread == events[start].thread:
            depth += {CALL: 1, RETURN: -1}.get(event.kind, 0)
            if depth < 2:
                return
            yield event


def _first(events: Sequence[Event], start: int, kind: str, text: str) -> int:
    for place in range(start, len(events)):
        if events[place].kind == kind and text in events[place].detail:
            return place
    raise LookupError(f"no {kind} with {text}")


def _entry(reply: str) -> str:
    found = set(_ENTRY.findall(reply))
    if len(found) != 1:
        raise LookupError(f"not one message alone: {reply}")
    return found.pop()


def _calls(events: Iterable[Event]) -> list[str]:
    return [event.detail for event in events if event.kind == CALL]


def _command(calls: Sequence[str]) -> list[str]:
    """Return the calls of a command's work: it declares its arguments at each start."""
    return list(calls[calls.index("management/commands/mq:Command.handle") :])
