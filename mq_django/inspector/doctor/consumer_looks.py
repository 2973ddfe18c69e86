"""Looks at the queues, the groups of topics, and their consumers."""

from collections import Counter
from collections.abc import Iterator

from mq_django.core.version import PROTOCOL, VERSION
from mq_django.core.visible import escape
from mq_django.inspector.doctor.consumer_facts import QueueFacts
from mq_django.inspector.doctor.consumer_settings import SETTING_LOOKS
from mq_django.inspector.doctor.findings import MAX_NAMED, NOT_LOOKED, DoctorFinding, Look, counted, named
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.topics import TopicView

#: The share of a topic's retention from which there is a warning. At the whole of it messages are lost.
NEAR_RETENTION = 0.5


def _of_unserved(facts: QueueFacts) -> Iterator[DoctorFinding]:
    unserved = [queue for queue in facts.readable if not queue.is_served]
    waiting = [queue for queue in unserved if queue.depth]
    advice = "Start a consumer: manage.py runconsumer {}".format(
        " ".join(queue.name for queue in (waiting or unserved)[:MAX_NAMED])
    )
    if waiting:
        seen = named(f"{queue.name} ({counted(queue.depth, 'message')})" for queue in waiting)
        yield DoctorFinding(
            code="D301", level="warning", seen=f"Messages wait in queues without a consumer: {seen}.", advice=advice
        )
    elif unserved:
        seen = f"No consumer runs for {named(queue.name for queue in unserved)}. No message waits there."
        yield DoctorFinding(code="D301", level="note", seen=seen, advice=advice)


def _of_unattended(facts: QueueFacts) -> Iterator[DoctorFinding]:
    found = [queue.name for queue in facts.readable if "unattended" in queue.problems()]
    if found:
        yield DoctorFinding(
            code="D302",
            level="warning",
            seen=f"Other programs handle {named(found)} (CONSUME is False), and no supervisor does the housekeeping: "
            "delayed messages do not become ready, and those of dead consumers stay with them.",
            advice=f"Start a consumer: manage.py runconsumer --housekeeping {' '.join(found[:MAX_NAMED])}",
        )


def _of_versions(facts: QueueFacts) -> Iterator[DoctorFinding]:
    found = Counter((one.version, escape(one.host)) for one in facts.supervisors.values() if one.version)
    same_protocol = all(one.announced.get("protocol", PROTOCOL) == PROTOCOL for one in facts.supervisors.values())
    if same_protocol and {version for version, _ in found} <= {VERSION}:
        return
    shown = [f"{escape(version)} on {host}" for version, host in sorted(found)]
    yield DoctorFinding(
        code="D303",
        level="warning",
        seen=f"Consumers have other versions of mq_django than this process, which has {VERSION}: {named(shown)}.",
        advice="If this is not a rolling deploy, install the same version everywhere and restart runconsumer there.",
    )


def _of_groups(facts: QueueFacts) -> Iterator[DoctorFinding]:
    for topic in facts.topics:
        for group in topic.groups:
            if (group.share or 0.0) < NEAR_RETENTION:
                continue
            retention = topic.config.retention
            left = 0.0 if retention is None else retention.total_seconds() - group.behind_ms / 1000
            until = f" The oldest of them is removed in {_duration(left)}." if left > 0 else ""
            yield DoctorFinding(
                code="D305",
                level="error" if (group.share or 0.0) >= 1 else "warning",
                seen=f"The group {escape(group.queue)} is {counted(group.behind, 'message')} behind, {group.share:.0%} "
                f"of what its topic keeps.{until}",
                advice=f"Start more consumers (manage.py runconsumer {group.queue}), or raise RETENTION of the topic. "
                f"If nobody needs the group: manage.py mq unsubscribe {group.queue}",
            )


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _of_unhandled(facts: QueueFacts) -> Iterator[DoctorFinding]:
    found = [queue for queue in facts.readable if queue.unhandled]
    if found:
        counts = named(f"{queue.name} ({queue.unhandled})" for queue in found)
        yield DoctorFinding(
            code="D306",
            level="warning",
            seen=f"Messages have names that no consumer has a handler for: {counts}.",
            advice="See their names with: manage.py mq peek QUEUE unhandled. Deploy the handlers, or delete the "
            "messages: manage.py mq purge QUEUE unhandled --yes",
        )


def _of_errors(facts: QueueFacts) -> Iterator[DoctorFinding]:
    views: list[QueueView | TopicView] = [*facts.queues, *facts.topics]
    errors = {view.name: view.error for view in views if view.error}
    for error in dict.fromkeys(errors.values()):
        names = named(name for name in errors if errors[name] == error)
        yield DoctorFinding(
            code=NOT_LOOKED,
            level="note",
            seen=f"{names} could not be looked at: {error.rstrip('.')}.",
            advice="See the findings about the server; a key of a wrong type is shown by the admin.",
        )


QUEUE_LOOKS: tuple[Look[QueueFacts], ...] = (
    Look("queues without consumers", ("D301",), _of_unserved),
    Look("housekeeping", ("D302",), _of_unattended),
    Look("versions", ("D303",), _of_versions),
    *SETTING_LOOKS,
    Look("groups and retention", ("D305",), _of_groups),
    Look("unhandled messages", ("D306",), _of_unhandled),
    Look("queues that cannot be read", (NOT_LOOKED,), _of_errors),
)
