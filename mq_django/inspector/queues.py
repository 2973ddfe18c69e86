"""All queues or one of them, for display."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from mq_django.conf import QueueConfig, TopicConfig, get_config
from mq_django.core import clock
from mq_django.core.keys import GROUP_SEPARATOR, KINDS
from mq_django.core.partitions import preferred
from mq_django.core.texts import repr_of
from mq_django.errors import ConnectionLost, ConnectionRejected, NotSupported, StoreError, UnknownQueue
from mq_django.inspector import statistics
from mq_django.inspector.queue_view import RECENT, STATES, Activity, Period, QueueView, activity_of, counts
from mq_django.registry import groups
from mq_django.stores import preferences
from mq_django.stores.counters import WHAT
from mq_django.stores.topic_stats import MAX_NAMES, group_names, shares
from mq_django.transport.connections import node_of, open_transport, open_transports
from mq_django.transport.sessions import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The sums over all queues that can be read: activity of today and yesterday, and current counts."""

    published: int
    handled: int
    retried: int
    buried: int
    #: Discarded because they had expired.
    expired: int
    ready: int
    pending: int
    delayed: int
    unhandled: int
    dead: int
    #: Queue or topic that cannot be read -> its error.
    errors: Mapping[str, str]


def overview(names: Collection[str] = (), *, minutes: int = RECENT + 1) -> list[QueueView]:
    """Return all queues and groups of topics, by name, with the total activity of the last minutes.

    With `names`, return only these, in their order. A queue with partitions is one view, with sums.

    Raises:
        UnknownQueue: a queue is not configured.
        ConfigurationError: a setting is wrong.
        StoreError: cannot reach Redis.
    """
    chosen = [get_config().queue(name) for name in names]
    return _looked_at(list(dict.fromkeys(chosen)) or whole_configs(), minutes=minutes)


def groups_of(topic: str) -> list[QueueView]:
    """Return the groups of a topic as overview() does.

    Raises:
        UnknownTopic: the topic is not configured.
        StoreError: cannot reach Redis.
    """
    chosen = [get_config().queue(name) for name in sorted(_groups([get_config().topic(topic)]))]
    return _looked_at(chosen, minutes=RECENT + 1)


def queue(name: str, *, of: str = "") -> QueueView:
    """Return a queue with the activity of the last hour by name, and in total or of messages named `of`.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    config = get_config().queue(name)
    parts = config.each_part
    transports = transports_of(parts)
    found, happened = statistics.read_closely(parts, transports, of=of)
    views = _with_waits(found, parts, transports)
    return replace(statistics.summed(config, views), activity=happened)


def activity(name: str, *, hours: int, of: str = "") -> Activity:
    """Return the activity of a queue in the last hours, per hour; if `of` is given, of messages with that name.

    Above 30,000 counters, `names` is not read except for `of`, and `names_left_out` is True.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    period = Period.up_to(clock.now_ms(), slot=60, steps=hours)
    return activity_in(get_config().queue(name), period, of=of)


def activity_in(config: QueueConfig | TopicConfig, period: Period, *, of: str = "") -> Activity:
    """Return the activity of a queue or topic in a period; see activity()."""
    parts = config.each_part
    keys = [period.keys(part.keys) for part in parts]
    found = statistics.counted(keys, transports_of(parts), slots=period.size, of=of)
    return replace(activity_of(period.by_start(found.hashes), period, of=of), names_left_out=found.names_left_out)


def require_queue(name: str) -> None:
    """Check that a queue is configured, or that a group of a topic exists: in code, or with a key in Redis.

    Each valid name is the name of a possible group, so a typo would otherwise be an empty queue that can be paused.

    Raises:
        UnknownQueue: it is not.
        StoreError: cannot reach Redis.
    """
    config = get_config().queue(name)
    keys = config.keys
    topic, separator, group = name.partition(GROUP_SEPARATOR)
    if not separator or config.public_name in groups():
        return
    transport = open_transport("inspect", config.connection)
    (found,) = group_names([get_config().topic(topic)], [transport])
    if not isinstance(found, StoreError) and group in found:
        return
    if not transport.ask(("EXISTS", *(getattr(keys, kind) for kind in KINDS if kind != "wake"))):
        raise UnknownQueue(f"Topic {repr_of(topic)} has no group {repr_of(group)}, in code or in Redis")


def quick_stats(name: str, *, minutes: int = 0) -> QueueView:
    """Return a queue with the total activity of the last minutes; without minutes, what holds its slots is not read.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    config = get_config().queue(name)
    if minutes:
        return _looked_at([config], minutes=minutes)[0]
    return statistics.summed(config, bare(config.each_part))


def bare(configs: Sequence[QueueConfig]) -> list[QueueView]:
    """Return queues without their activity, and without what their messages wait for.

    Raises:
        StoreError: cannot reach Redis.
    """
    return list(map(_shown, configs, statistics.read_views(configs, transports_of(configs), minutes=0)))


def redis_now_ms() -> int:
    """Return the time in ms since 1970 by the clock of Redis, by that of this machine if it cannot be asked."""
    config = min(get_config().queues.values(), key=lambda config: config.connection, default=None)
    if config is not None:
        # Times that nobody can compare with this clock are shown by another one rather than not at all.
        with suppress(StoreError):
            transport = open_transport("inspect", config.connection)
            return int(transport.run("clock_read", [config.each_part[0].keys.ready])) // 1000
    return clock.now_ms()


def totals() -> Totals:
    """Return the sums over all queues.

    Raises:
        StoreError: cannot reach any server.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    configs, today = all_configs(), int(clock.now()) // 86400
    happened = dict.fromkeys(WHAT, 0)
    errors = {}
    # Publishing to a topic is counted once, by the topic; handling is counted by each group.
    counting: list[QueueConfig | TopicConfig] = [
        *configs,
        *(part for topic in get_config().topics.values() for part in topic.each_part),
    ]
    for config, days in zip(
        counting, statistics.hours_of((today - 1, today), counting, transports_of(counting)), strict=True
    ):
        if isinstance(days, StoreError):
            errors[config.name] = str(days)
            continue
        for _, what, _, count in chain.from_iterable(map(counts, days)):
            if what in happened:
                happened[what] += count
    views = bare(configs)
    states = [state for state in STATES if state != "parked"]
    waiting: Any = {state: sum(getattr(view, state) for view in views) for state in states}
    return Totals(
        **happened,
        **waiting,
        errors=errors | {view.name: view.error for view in views if view.error},
    )


def transports_of(configs: Sequence[QueueConfig | TopicConfig]) -> list[Transport]:
    """Return the transport of each queue or topic."""
    return open_transports("inspect", [config.connection for config in configs])


def all_configs() -> list[QueueConfig]:
    """Return the configs of all queues, of the partitions of those that have some, and of all groups of topics."""
    return [part for whole in whole_configs() for part in whole.each_part]


def whole_configs() -> list[QueueConfig]:
    """Return the configs of all queues and groups of topics, by name."""
    config = get_config()
    try:
        known = _groups(list(config.topics.values()))
    except (ConnectionLost, ConnectionRejected):
        # The queues may be on another server.
        if len(config.connections()) == 1:
            raise
        known = set().union(*(groups(topic) for topic in config.topics))
    return [config.queue(name) for name in sorted({*config.queues, *known})]


def _groups(topics: Sequence[TopicConfig]) -> set[str]:
    """Return the groups of topics, in code or in Redis, as `topic:group`.

    Errors are ignored here: the page of the topic shows them.
    """
    in_code = [name.partition(GROUP_SEPARATOR) for name in groups()]
    found = {
        f"{topic.name}{GROUP_SEPARATOR}{group}"
        for topic in topics
        for of, _, group in in_code
        if of == topic.public_name
    }
    there = group_names(topics, transports_of(topics), max_groups=MAX_NAMES)
    for topic, names in zip(topics, shares(topics, there), strict=True):
        if not isinstance(names, StoreError):
            found |= {f"{topic.name}{GROUP_SEPARATOR}{name}" for name in names}
    return found


def groups_left_out() -> dict[str, int]:
    """Return how many groups of topics with too many of them overview() does not show.

    Raises:
        StoreError: cannot reach Redis.
    """
    topics = list(get_config().topics.values())
    there = group_names(topics, transports_of(topics), max_groups=MAX_NAMES) if topics else []
    pairs = zip(topics, there, shares(topics, there), strict=True)
    more = {
        topic.name: len(names) - len(shown)
        for topic, names, shown in pairs
        if not isinstance(names, StoreError) and not isinstance(shown, StoreError)
    }
    return {name: count for name, count in more.items() if count}


def _looked_at(configs: Sequence[QueueConfig], *, minutes: int) -> list[QueueView]:
    """Return queues with what their messages wait for, and with the total activity of the last minutes."""
    parts = [part for config in configs for part in config.each_part]
    transports = transports_of(parts)
    views = iter(_with_waits(statistics.read_views(parts, transports, minutes=minutes), parts, transports))
    return [statistics.summed(config, list(islice(views, len(config.each_part)))) for config in configs]


def _with_waits(
    found: Sequence[QueueView | StoreError], configs: Sequence[QueueConfig], transports: Sequence[Transport]
) -> list[QueueView]:
    """Return queues with the messages that were fetched and have not started, and with what holds their slots."""
    views = list(map(_shown, configs, found))
    return statistics.with_blockers(statistics.with_fetched(views, configs, transports))


def _shown(config: QueueConfig, found: QueueView | StoreError) -> QueueView:
    return QueueView(name=config.name, error=str(found)) if isinstance(found, StoreError) else found


# The queues that a user of the admin has starred.


def starred(user: str) -> Sequence[str]:
    """Return the queues that a user has starred, in the order in which that was done.

    Raises:
        StoreError: cannot reach Redis.
    """
    (reply,) = open_transport("inspect", "").pipeline([preferences.read_stars(get_config().namespace, user)])
    return preferences.stars_in(reply)


def star(user: str, name: str, *, is_starred: bool) -> None:
    """Star a queue for a user, or take the star away. Stars of queues that are not in the settings end.

    Raises:
        UnknownQueue: the queue is not configured.
        NotSupported: the user has 50 stars, or 1,000 users have some.
        StoreError: cannot reach Redis.
    """
    get_config().queue(name)
    known = get_config().queues
    others = [each for each in starred(user) if each in known and each != name]
    if not preferences.write_stars(
        open_transport("inspect", ""), get_config().namespace, user, [*others, *[name] * is_starred]
    ):
        raise NotSupported(f"{preferences.MAX_STARS} queues are starred, or {preferences.MAX_USERS} users have stars")


# The partitions of a queue: what each has, where it is, and which consumer looks there first.


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One partition."""

    view: QueueView
    #: The text in braces in its keys.
    tag: str
    #: Host and port of the node that has it; "" without a cluster, and if that is not known.
    node: str
    #: The consumer that looks there first; "" if none fetches.
    preferred: str


def partitions(name: str) -> list[PartitionRow]:
    """Return the partitions of a queue, by number.

    Raises:
        UnknownQueue: the queue is not configured.
        NotSupported: it has no partitions.
        StoreError: cannot reach Redis.
    """
    config = get_config().whole_queue(name)
    if not config.parts:
        raise NotSupported(f"Queue {repr_of(name)} has no partitions")
    return [
        PartitionRow(
            view=view,
            tag=part.keys.queue,
            node=node_of(part.connection, part.keys.ready),
            preferred=_preferred(view, part.number, len(config.parts)),
        )
        for part, view in zip(config.parts, queue(name).parts, strict=True)
    ]


def _preferred(view: QueueView, number: int, count: int) -> str:
    """Return what the supervisors compute: see `mq_django.consumers.supervisor.worker_set`."""
    fetching = [consumer.id for consumer in view.consumers if consumer.is_fetching and consumer.threads]
    return next((name for name, numbers in preferred(count, fetching).items() if number in numbers), "")
