"""Calls of scripts, recorded under titles and run again as they were, and under worse conditions."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import redis

from tests.stores.contracts.states import Detail, Lines, View, difference, of_keys, packed, shown
from tests.stores.everything import ME
from tests.stores.recording import Call, Recorder

#: A consumer that never held anything.
NOBODY = "host-9-nobody"
#: What some scripts change besides what all servers tell alike.
DETAILS: Mapping[str, Detail] = {"topic_seek": "entries read", "members_leave": "consumers"}


@dataclass(frozen=True)
class Effect:
    """What a call replied, and what was in Redis before and after it."""

    reply: list[str]
    before: Lines
    after: Lines
    refused: bool

    def text(self) -> list[str]:
        """Return the reply, and what is gone and what is new."""
        return [*self.reply, *difference(self.before, self.after)]


class Contracts(Recorder):
    """Keeps the calls of some scripts that are made under a title, and tells what each does."""

    def __init__(self, client: redis.Redis, namespace: str, names: set[str]) -> None:
        super().__init__(client, namespace)
        self.titled: list[tuple[int, str, Call]] = []
        #: The number of the scene that is played.
        self.scene = 0
        self._title = ""
        self._names = names
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
        if self._title and call.name in self._names:
            self.titled.append((self.scene, self._title, call))

    def texts(self) -> dict[str, str]:
        """Return for each script what its calls do."""
        by_name: dict[str, list[tuple[int, str, Call]]] = {}
        for scene, title, call in self.titled:
            by_name.setdefault(call.name, []).append((scene, title, call))
        return {name: "\n".join([f"# {name}", *self._contract(calls), ""]) for name, calls in by_name.items()}

    def _contract(self, calls: Sequence[tuple[int, str, Call]]) -> Iterator[str]:
        """Yield what each call does. Keys, and what was in Redis before, are told where they differ from the last."""
        keys, told = list[str](), set[tuple[Any, ...]]()
        known, known_scene = Lines(), -1
        for scene, title, call in calls:
            self._view.detail = DETAILS.get(call.name)
            effect = self._effect(call)
            changed = effect.after != effect.before
            yield from ("", f"## {title}" + (self._when_full(call, effect) if changed else ""))
            if (named := [self._view.text(key) for key in call.keys]) != keys:
                keys = named
                yield from packed("keys", keys)
            yield from packed("args", [self._view.text(word) for word in call.command[3 + int(call.command[2]) :]])
            was = of_keys(known if scene == known_scene else Lines(), keys)
            yield from (f"  {line}" for line in difference(was, of_keys(effect.before, keys), signs=("without ", "")))
            yield from effect.text()
            known, known_scene = effect.after, scene
            yield from self._again(call, effect)
            if (form := form_of(call)) not in told:
                told.add(form)
                yield from self._otherwise(call, effect)

    def _effect(self, call: Call, *, anew: bool = True) -> Effect:
        if anew:
            self.restore(call.before)
        before = self._view.state(self.keys())
        reply = self.run(call)
        return Effect(self._view.reply(reply), before, self._view.state(self.keys()), isinstance(reply, Exception))

    def _again(self, call: Call, first: Effect) -> Iterator[str]:
        """Yield what a call does after itself, if that is anything."""
        self.restore(call.before)
        self.run(call)
        again = self._effect(call, anew=False)
        if again.before != again.after or again.reply != first.reply:
            yield from shown("once more", again.text())

    def _otherwise(self, call: Call, usual: Effect) -> Iterator[str]:
        """Yield what a call does for somebody else, with nothing there, and beside keys of another type."""
        if ME in call.command:
            command = tuple(NOBODY if part == ME else part for part in call.command)
            yield from shown("by a consumer that holds nothing", self._effect(replace(call, command=command)).text())
        if call.before:
            yield from shown("with nothing there", self._effect(replace(call, before={})).text())
        refused, too_late = [], []
        for key in dict.fromkeys(call.keys):
            self.restore(call.before)
            self.client.delete(key)
            self.client.execute_command(*(("HSET", key, "a", "b") if ":result:" in key else ("SET", key, "x")))
            found = self._effect(call, anew=False)
            if found.refused:
                wrong = refused if found.before == found.after else too_late
                wrong.append(self._view.text(key))
        yield from packed("refused when another type has", refused)
        yield from packed("refused, after something is done, when another type has", too_late)

    def _when_full(self, call: Call, usual: Effect) -> str:
        """Return what differs when Redis has no memory left."""
        before = {name: self.client.config_get(name)[name] for name in ("maxmemory-policy", "maxmemory")}
        self.restore(call.before)
        try:
            self.client.config_set("maxmemory-policy", "noeviction")
            self.client.config_set("maxmemory", 1)
            found = self._effect(call, anew=False)
        finally:
            for name, value in before.items():
                self.client.config_set(name, value)
        if found.text() == usual.text():
            return ""
        ends, writes = "refused" if found.refused else "done", "nothing" if found.before == found.after else "less"
        return f" (when Redis is full: {ends}, {writes} is written)"


def form_of(call: Call) -> tuple[Any, ...]:
    """Return the outcome and the form of queue of a call of a script that has several of these."""
    named = {"settle": 1, "reassign": 0}.get(call.name)
    if named is None:
        return ()
    args = call.command[3 + int(call.command[2]) :]
    return (*args[:named], *({"log", "permits", "zset"} & set(args[named].split())))
