"""What people and code have done to queues: entries that match, the states of their jobs, and what can be undone."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mq_django.conf import get_config
from mq_django.core.breakers import hold_score
from mq_django.core.partitions import public_name
from mq_django.errors import InvalidFilter, StoreError
from mq_django.inspector.jobs import BackgroundJob, together
from mq_django.inspector.problem_list import get_mutes
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import overview, transports_of
from mq_django.inspector.stream_reader import Scanned, scan
from mq_django.stores.activity import VERBS, Action, Verb, actions_in, read_command
from mq_django.stores.background_jobs import jobs_of
from mq_django.stores.dead_letters import is_entry, next_to
from mq_django.stores.schedule_status import Origin, PlannedSchedule, statuses_of
from mq_django.transport.connections import open_transport
from mq_django.transport.sessions import fan_out, reply_or_raise

__all__ = ["VERBS", "Action", "Criteria", "Verb", "actions", "jobs_of_actions", "search", "to_undo", "undoable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """What is looked for. Empty values match everything."""

    queue: str = ""
    #: A part of the name; case does not matter.
    who: str = ""
    source: str = ""
    verbs: Collection[str] = ()
    #: In ms since 1970.
    since_ms: int | None = None
    until_ms: int | None = None

    def __bool__(self) -> bool:
        return self != _ALL

    def matches(self, found: Action) -> bool:
        """Return whether an entry matches. Its time is not looked at: that is a bound of the read."""
        return (
            (not self.queue or public_name(self.queue) in found.queues)
            and self.who.casefold() in found.who.casefold()
            and (not self.source or self.source == found.source)
            and (not self.verbs or found.verb in self.verbs)
        )


_ALL = Criteria()


def search(criteria: Criteria, *, after: str = "", limit: int) -> Scanned[Action]:
    """Return the entries that match, the newest first.

    Raises:
        InvalidFilter: `after` is no cursor.
        StoreError: cannot reach Redis.
    """
    if after and not is_entry(after):
        raise InvalidFilter("Not a cursor of the activity")
    transport, namespace = open_transport("inspect", ""), get_config().namespace
    newest = "+" if criteria.until_ms is None else f"({max(1, criteria.until_ms)}-0"
    oldest = "-" if criteria.since_ms is None else f"{max(0, criteria.since_ms)}-0"

    def read(cursor: str, count: int) -> Iterator[tuple[str, Action | None]]:
        command = read_command(namespace, first=oldest, last=next_to(cursor, newest), count=count)
        for entry, found in actions_in(transport.pipeline([command])[0]):
            yield entry, found if found is not None and criteria.matches(found) else None

    return scan(read, criteria, after=after, limit=limit)


def actions(
    *,
    queue: str = "",
    who: str = "",
    source: str = "",
    verbs: Collection[str] = (),
    since_ms: int | None = None,
    until_ms: int | None = None,
    after: str = "",
    limit: int = 50,
) -> Scanned[Action]:
    """Return what people and code have done to queues, the newest first.

    Args:
        queue: only what was done to this queue, or group of a topic as `topic:group`.
        who: only by people whose name contains this text.
        source: only what was done from "admin", "mq" or "code"; "consumer": only ends of jobs.
        verbs: only these, such as "pause".
        since_ms: from this time on, in ms since 1970.
        until_ms: before this time.
        after: `Scanned.after` of the page before.
        limit: the maximum number of entries.

    Raises:
        InvalidFilter: `after` is no cursor.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    criteria = Criteria(queue=queue, who=who, source=source, verbs=verbs, since_ms=since_ms, until_ms=until_ms)
    return search(criteria, after=after, limit=limit)


# The jobs of entries, and what can still be undone. A queue that cannot be read has neither.

#: The most entries in which a later schedule of the same name is looked for.
MAX_LATER = 1000
#: Verbs about the options of schedules.
OF_OPTIONS = ("change schedule", "delete schedule")

#: The most that may lie between an entry and what it has done, in ms: their servers may have different clocks.
CLOSE_MS = 10_000


def jobs_of_actions(found: Sequence[Action]) -> Mapping[str, BackgroundJob]:
    """Return the jobs that these entries have begun by their tokens; they are kept for a week."""
    configs = [get_config().queue(name) for name in _known({q for each in found if each.job for q in each.queues})]
    parts = [part for config in configs for part in config.each_part]
    jobs: dict[str, list[BackgroundJob]] = {}
    replies = fan_out(transports_of(parts), [[("HGETALL", part.keys.jobs)] for part in parts]) if parts else ()
    for (reply,) in replies:
        try:
            for job in jobs_of(reply_or_raise(reply)).values():
                jobs.setdefault(job.order.token, []).append(job)
        except StoreError:
            continue
    return {token: together(each) for token, each in jobs.items()}


def _known(names: Collection[str]) -> list[str]:
    config = get_config()
    return [name for name in sorted(names) if name in config.queues or _is_group(name)]


def _is_group(name: str) -> bool:
    topic, separator, _ = name.partition(":")
    return bool(separator) and topic in get_config().topics


def undoable(found: Sequence[Action], jobs: Mapping[str, BackgroundJob]) -> set[str]:
    """Return the ids of the entries whose effect is still there, and can be ended: nobody has changed it since.

    Raises:
        StoreError: cannot reach Redis.
    """
    return {
        *(each.id for each in found if (job := jobs.get(each.job)) is not None and _is_running(each, job)),
        *_paused([each for each in found if each.verb == "pause"]),
        *_held([each for each in found if each.verb in ("hold", "open breaker")]),
        *_limited([each for each in found if each.verb == "change limits"]),
        *_muted([each for each in found if each.verb == "mute"]),
        *_of_schedules([each for each in found if each.verb in ("pause schedule", "skip tick", *OF_OPTIONS)]),
    }


def to_undo(entry: str) -> Action | None:
    """Return an entry, if what it tells of is still so.

    Raises:
        StoreError: cannot reach Redis.
    """
    if not is_entry(entry):
        return None
    command = read_command(get_config().namespace, first=entry, last=entry, count=1)
    found = [each for _, each in actions_in(open_transport("inspect", "").pipeline([command])[0]) if each is not None]
    return found[0] if undoable(found, jobs_of_actions(found)) else None


def _is_running(found: Action, job: BackgroundJob) -> bool:
    return job.state == "running" and found.verb not in ("cancel job", "finish job")


def _views(found: Sequence[Action]) -> Mapping[str, QueueView]:
    """Return the queues of entries as they are now."""
    names = _known({name for each in found for name in each.queues})
    return {view.name: view for view in (overview(names, minutes=0) if names else ())}


def _is_of(found: Action, who: object, ms: float | None) -> bool:
    """Return whether what somebody has done at this time is what an entry tells of."""
    return who == found.undo.get("who") and abs((ms or 0) - found.ms) < CLOSE_MS


def _paused(found: Sequence[Action]) -> Iterator[str]:
    """Yield the pauses that are not over."""
    views = _views(found)
    for each in found:
        parts = (part for name in each.queues if name in views for part in views[name].each_part)
        here = (part.pause for part in parts if part.pause is not None)
        if any(_is_of(each, one.who, one.since_ms) and one.name == each.undo.get("name", "") for one in here):
            yield each.id


def _held(found: Sequence[Action]) -> Iterator[str]:
    """Yield the holds and the breakers opened by hand that are not over."""
    views = _views(found)
    for each in found:
        holds = (hold for name in each.queues if name in views for hold in views[name].holds)
        here = (hold for hold in holds if hold_score(hold.subject) == each.undo.get("score"))
        if any(_is_of(each, hold.who, hold.since_ms) and hold.state != "ended" for hold in here):
            yield each.id


def _limited(found: Sequence[Action]) -> Iterator[str]:
    """Yield the changes of limits of which all are as they were made."""
    views = _views(found)
    for each in found:
        before, view = each.undo.get("before"), views.get(each.queues[0]) if each.queues else None
        if view is None or not before or not isinstance(before, dict):
            continue
        now = [change for name, change in view.limit_changes.items() if name in before]
        if len(now) == len(before) and all(_is_of(each, change.who, change.since_ms) for change in now):
            yield each.id


def _muted(found: Sequence[Action]) -> Iterator[str]:
    mutes = get_mutes() if found else {}
    for each in found:
        mute = mutes.get((each.queues[0], each.about[0])) if each.queues and each.about else None
        seconds = each.undo.get("seconds")
        if mute is None or not isinstance(seconds, int | float):
            continue
        if _is_of(each, mute.who, mute.until_ms - seconds * 1000):
            yield each.id


def _of_schedules(found: Sequence[Action]) -> Iterator[str]:
    """Yield the pauses of schedules and skipped ticks that are not over, and the latest changes that can be undone."""
    config = get_config()
    names = [name for name in sorted({q for each in found for q in each.queues}) if name in config.queues]
    configs = [config.queue(name) for name in names if config.queue(name).has_schedules]
    read = statuses_of(configs, transports_of(configs)) if configs else ()
    known = {
        config.name: {plan.name: plan for plan in statuses.found if plan.origin is not Origin.REMOVED}
        for config, statuses in zip(configs, read, strict=True)
        if not isinstance(statuses, StoreError)
    }
    last = _last_ends([each for each in found if each.verb == "delete schedule"])
    for each in found:
        plans = known.get(each.queues[0]) if each.queues and each.about else None
        if plans is not None and _is_so(each, plans, is_last=each.id in last):
            yield each.id


def _is_so(found: Action, plans: Mapping[str, PlannedSchedule], *, is_last: bool) -> bool:
    if found.verb in OF_OPTIONS:
        name, before = found.undo.get("name"), found.undo.get("options")
        if not isinstance(name, str) or not isinstance(before, dict):
            return False
        plan = plans.get(name)
        if found.verb == "delete schedule":
            return plan is None and is_last
        return plan is not None and plan.version == found.undo.get("changed")
    plan = plans.get(found.about[0])
    if plan is None:
        return False
    if found.verb == "skip tick":
        return any(tick.tick_ms == found.undo.get("tick") for tick in plan.skips)
    return plan.paused and abs((plan.paused_ms or 0) - found.ms) < CLOSE_MS


def _last_ends(deletions: Sequence[Action]) -> set[str]:
    """Return the ids of these entries after which no schedule of the name was created and deleted again."""
    if not deletions:
        return set()
    verbs, since_ms = ("create schedule", "delete schedule"), min(each.ms for each in deletions)
    last: dict[tuple[str, str], str] = {}
    for each in search(Criteria(verbs=verbs, since_ms=since_ms), limit=MAX_LATER).rows:
        if each.queues and each.about:
            last.setdefault((each.queues[0], each.about[0]), each.id)
    return {*last.values()}
