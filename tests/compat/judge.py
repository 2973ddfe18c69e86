"""Decide from the history of a run whether the two versions kept their promises together."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

LABELS = ("old", "new")


class Account:
    """What was published, and what became of it, by kind."""

    def __init__(self, lines: Iterable[Mapping[str, Any]]) -> None:
        #: By kind, the ids that a publish returned for, and the version that published each.
        self.published: dict[str, dict[str, str]] = defaultdict(dict)
        #: By kind and id, how often its effect happened.
        self.effects: dict[str, Counter[str]] = defaultdict(Counter)
        #: Ids of messages that fail until they are dead letters.
        self.dying: set[str] = set()
        #: Ids and values of results.
        self.results: dict[str, int] = {}
        self.ticks: Counter[str] = Counter()
        #: By version, the files that its processes have mq_django from.
        self.origins: dict[str, set[str]] = defaultdict(set)
        self._handled: list[tuple[str, str, str]] = []
        self._names: dict[str, str] = {}
        self._cancelled: list[str] = []
        for line in lines:
            getattr(self, f"_{line['what']}")(line)
        self.cancelled = {self._names[message_id] for message_id in self._cancelled}
        #: By kind, pairs (version that published, version that handled).
        self.crossings: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        for kind, message, by in self._handled:
            self.crossings[kind][self.published[kind].get(message, "?"), by] += 1

    def _ok(self, line: Mapping[str, Any]) -> None:
        self.published[line["kind"]] |= dict.fromkeys(line["ids"], line["by"])

    def _effect(self, line: Mapping[str, Any]) -> None:
        self.effects[line["kind"]][line["id"]] += 1
        self._handled.append((line["kind"], line["id"], line["by"]))
        if "version" in line:
            self.origins[line["by"]].add(line["version"])

    def _dies(self, line: Mapping[str, Any]) -> None:
        self.dying |= set(line["ids"])

    def _named(self, line: Mapping[str, Any]) -> None:
        self._names[line["message_id"]] = line["id"]

    def _cancels(self, line: Mapping[str, Any]) -> None:
        self._cancelled.append(line["message_id"])

    def _result(self, line: Mapping[str, Any]) -> None:
        self.results[line["id"]] = line["value"]

    def _tick(self, line: Mapping[str, Any]) -> None:
        self.ticks[line["id"]] += 1

    def missing(self) -> dict[str, set[str]]:
        """Return by kind the ids that should have had an effect, and have had none."""
        found = {kind: set(ids) - self.cancelled - self.effects[kind].keys() for kind, ids in self.published.items()}
        return {kind: ids for kind, ids in found.items() if ids}

    def doubled(self) -> dict[str, list[str]]:
        """Return by kind the ids that had an effect more than once."""
        found = {kind: [one for one, times in counts.items() if times > 1] for kind, counts in self.effects.items()}
        return {kind: ids for kind, ids in found.items() if ids}


def faults(account: Account, *, seconds: float) -> Iterator[str]:
    """Yield a sentence for each promise that was not kept in a run of so many seconds."""
    for kind, ids in account.missing().items():
        yield f"{len(ids)} messages of kind {kind} were lost: {_some(ids)}"
    for kind, doubled in account.doubled().items():
        yield f"{len(doubled)} messages of kind {kind} were handled twice: {_some(doubled)}"
    for kind, counts in account.effects.items():
        if foreign := counts.keys() - account.published[kind].keys():
            yield f"{len(foreign)} messages of kind {kind} were handled and never published: {_some(foreign)}"
    yield from _of_cancelling(account)
    yield from _of_the_schedule(account, seconds)
    yield from _of_the_set_up(account)


def _of_cancelling(account: Account) -> Iterator[str]:
    if wrongly := account.cancelled & account.effects["cancel"].keys():
        yield f"{len(wrongly)} cancelled messages were handled: {_some(wrongly)}"
    if not account.cancelled:
        yield "no version cancelled a message of the other"


def _of_the_schedule(account: Account, seconds: float) -> Iterator[str]:
    if twice := [tick for tick, times in account.ticks.items() if times > 1]:
        yield f"{len(twice)} ticks of the schedule were handled twice"
    # At the start no consumer runs for some seconds, and a tick is missed once a replacement takes longer than that.
    if not seconds / 2 - 5 <= len(account.ticks) <= seconds + 1:
        yield f"a schedule of one second fired {len(account.ticks)} times in {seconds:.0f} s"


def _of_the_set_up(account: Account) -> Iterator[str]:
    """Yield what the run did not show: else it could pass without its subject."""
    for kind in account.published:
        wanted = {(by, of) for by in LABELS for of in _handlers_of(kind)}
        if unseen := wanted - account.crossings[kind].keys():
            yield f"of kind {kind} nothing went from publisher to handler as {sorted(unseen)}"
    if any(len(account.origins[label]) != 1 for label in LABELS) or account.origins["old"] == account.origins["new"]:
        yield f"the versions ran the code in {dict(account.origins)}"


def _handlers_of(kind: str) -> Sequence[str]:
    return [kind.removeprefix("only-")] if kind.startswith("only-") else LABELS


def _some(ids: Iterable[str]) -> str:
    return ", ".join(sorted(ids)[:5])
