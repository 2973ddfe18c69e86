"""Calls of scripts, recorded under titles and run again as they were, twice, and under worse conditions."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import redis

from mq_django.transport.scripts import Command
from tests.stores.contracts.states import Detail, View, by_key, difference, packed, shortened
from tests.stores.everything import ME
from tests.stores.recording import Call, Recorder

#: A consumer that never held anything.
NOBODY = "host-9-nobody"
AGAIN, FULL = "once more", "with a full Redis"
#: What some scripts change besides what all servers tell alike.
DETAILS: Mapping[str, Detail] = {
    "topic_seek": "entries read",
    "topic_skip": "consumers",
    "members_leave": "consumers",
}
#: Keys of a call that are replaced by another type: one script has all the counters of 35 days.
MOST_KEYS = 20

#: What calls do, with the conditions under which they do so.
Alike = dict[tuple[str, ...], list[str]]


class Contracts(Recorder):
    """Keeps the calls that are made under a title, and tells what each does."""

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        super().__init__(client, namespace)
        self.titled: list[tuple[str, Call]] = []
        self._title = ""
        #: Why scenes ended before their end.
        self.ended: list[str] = []
        self._view = View(client, namespace)

    @contextmanager
    def under(self, title: str) -> Iterator[None]:
        """Keep the calls that are made from here on."""
        known, self._title = len(self.titled), title
        try:
            yield
        finally:
            self._title = ""
        assert len(self.titled) > known, f"no script was called: {title}"

    def keep(self, call: Call, reply: Any) -> None:
        """Keep a call that has a title."""
        if self._title:
            self.titled.append((self._title, call))

    def texts(self) -> dict[str, str]:
        """Return for each script what its calls do."""
        by_name: dict[str, list[str]] = {}
        for title, call in self.titled:
            lines = by_name.setdefault(call.name, [])
            lines += ["", *self._contract(title, call, is_first=not lines)]
        return {name: "\n".join([f"# {name}", *lines, ""]) for name, lines in by_name.items()}

    def _contract(self, title: str, call: Call, *, is_first: bool) -> Iterator[str]:
        self._view.detail = DETAILS.get(call.name)
        yield f"## {title}"
        args = call.command[3 + int(call.command[2]) :]
        for what, words in (("keys", call.keys), ("args", args)):
            yield from shortened(packed(what, [self._view.text(word) for word in words]))
        self.restore(call.before)
        yield from by_key(self._view.state(self._there(call)))
        before = self._view.state(self.keys())
        effect = self._effect(call, before)
        yield from effect
        for found, names in self._otherwise(call, before, effect, is_first=is_first).items():
            yield from (f"### {name}" for name in names)
            yield from ["the same"] if list(found) == effect else found

    def _otherwise(self, call: Call, before: Sequence[str], effect: Sequence[str], *, is_first: bool) -> Alike:
        """Return what a call does under other conditions, with the names of these."""
        alike: Alike = {}
        changes = any(line.startswith(("-", "+")) for line in effect)
        for name, other, commands in self._variants(call, is_first=is_first, changes=changes):
            self.restore(call.before)
            if name == AGAIN:
                self.run(call)
            for command in commands:
                self.client.execute_command(*command)
            was = self._view.state(self.keys()) if name == AGAIN or commands else before
            with self._full() if name == FULL else nullcontext():
                alike.setdefault(tuple(self._effect(other, was)), []).append(name)
        return alike

    def _there(self, call: Call) -> list[bytes]:
        """Return those keys of a call that were there before it."""
        return [key for key in dict.fromkeys(key.encode() for key in call.keys) if key in call.before]

    def _effect(self, call: Call, before: Sequence[str]) -> list[str]:
        reply = self.run(call)
        told = self._view.reply(reply)
        return [*shortened([f"= {told[0]}", *told[1:]]), *difference(before, self._view.state(self.keys()))]

    @contextmanager
    def _full(self) -> Iterator[None]:
        """Let Redis have no memory left."""
        before = {name: self.client.config_get(name)[name] for name in ("maxmemory-policy", "maxmemory")}
        try:
            self.client.config_set("maxmemory-policy", "noeviction")
            self.client.config_set("maxmemory", 1)
            yield
        finally:
            for name, value in before.items():
                self.client.config_set(name, value)

    def _variants(self, call: Call, *, is_first: bool, changes: bool) -> Iterator[tuple[str, Call, Sequence[Command]]]:
        """Yield the conditions under which a call is run again."""
        yield AGAIN, call, []
        if changes:
            yield FULL, call, []
        if ME in call.command:
            arguments = tuple(NOBODY if part == ME else part for part in call.command)
            yield "by a consumer that holds nothing", replace(call, command=arguments), []
        if call.before:
            yield "with nothing there", call, [("DEL", *call.before)]
        for key in list(dict.fromkeys(call.keys))[:MOST_KEYS] if is_first else []:
            other: Command = ("HSET", key, "a", "b") if ":result:" in key else ("SET", key, "x")
            yield f"with another type of {self._view.text(key)}", call, [("DEL", key), other]
