"""The consumers of a queue, for display: processes, states and running deliveries."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mq_django.core.numbers import LAST_MS, whole
from mq_django.stores.members import HOUSEKEEPING, Membership, supervisor_of

#: A supervisor without a heartbeat for this long is shown as gone: three intervals.
ALIVE_MS = 7500

#: The states of a consumer, which only move forward.
State = Literal["running", "quiet", "stopping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningView:
    """A delivery that a consumer runs, as of its supervisor's last heartbeat."""

    #: The number of the stream it came from, and its receipt.
    source: int
    entry: str
    #: For how long it has run, in ms.
    ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerView:
    """A consumer of a queue."""

    id: str
    supervisor: str
    host: str
    pid: int | None
    version: str
    threads: int | None
    #: Milliseconds since 1970; None if unknown.
    since_ms: int | None
    #: Milliseconds since its supervisor's last heartbeat; None when there was none.
    seen_ms_ago: int | None
    state: State = "running"
    #: What it or its supervisor was asked to do: "quiet", "stop", or "".
    asked: str = ""
    #: The longest first; a bounded number.
    running: Sequence[RunningView] = ()
    #: Deliveries of the queue since the process started.
    handled: int = 0
    failed: int = 0

    @property
    def is_process(self) -> bool:
        """Return whether it is a process. The backlog of a quarantine is listed as a consumer with 0 threads."""
        return self.threads != 0

    @property
    def alive(self) -> bool:
        """Return whether its supervisor has sent a heartbeat recently."""
        return self.seen_ms_ago is not None and self.seen_ms_ago <= ALIVE_MS


def consumers_of(membership: Membership, *, now_ms: int) -> tuple[ConsumerView, ...]:
    """Return the consumers of a queue, live ones first."""
    found = (_view(membership, name, described, now_ms) for name, described in membership.consumers.items())
    return tuple(sorted(found, key=lambda consumer: (not consumer.alive, consumer.id)))


def housekeepers_of(membership: Membership, *, now_ms: int) -> tuple[ConsumerView, ...]:
    """Return the live supervisors that do the housekeeping of a queue and have no consumers in it.

    They are shown as consumers without threads.
    """
    consuming = {supervisor_of(described) for described in membership.consumers.values()}
    found = [
        _view(membership, name, {"supervisor": name, "threads": 0}, now_ms)
        for name, described in membership.supervisors.items()
        if described.get(HOUSEKEEPING) is True and name not in consuming
    ]
    return tuple(sorted((one for one in found if one.alive), key=lambda one: one.id))


def _view(membership: Membership, name: str, described: Mapping[str, Any], now_ms: int) -> ConsumerView:
    supervisor = supervisor_of(described)
    seen = membership.seen_ms.get(supervisor)
    fields = {**membership.supervisors.get(supervisor, {}), **described}
    ago = None if seen is None else max(0, now_ms - seen)
    return ConsumerView(
        id=name,
        supervisor=supervisor,
        host=_text(fields, "host"),
        pid=_number(fields, "pid"),
        version=_text(fields, "version"),
        threads=_number(fields, "threads"),
        since_ms=_number(fields, "since_ms"),
        seen_ms_ago=ago,
        state=_state(described.get("state")),
        asked=membership.asks.get(name) or membership.asks.get(supervisor, ""),
        running=tuple(_running(described.get("running"), ago or 0)),
        handled=_number(described, "handled") or 0,
        failed=_number(described, "failed") or 0,
    )


def _state(word: object) -> State:
    return word if word == "quiet" or word == "stopping" else "running"


def _running(described: object, ago: int) -> Iterable[RunningView]:
    # Invalid entries, which other programs may have written, are left out.
    for item in described if isinstance(described, list) else ():
        match item:
            case [int(source), str(entry), int(ms)]:
                yield RunningView(source=source, entry=entry, ms=(whole(ms, LAST_MS) or 0) + ago)


def _number(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    return whole(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
