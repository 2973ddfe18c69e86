"""Values of the inspector as JSON, for the command `mq`."""

from typing import Any

from mq_django.core.redaction import redact
from mq_django.core.running_handler import Progress
from mq_django.core.texts import repr_of
from mq_django.inspector.message_views import MessageView, moment_text
from mq_django.inspector.processes import ProcessView, SupervisorView
from mq_django.inspector.queue_view import Pause, QueueView
from mq_django.inspector.topics import GroupStats
from mq_django.stores.schedules import ScheduleStatus

#: The counts of `status`, as attributes of a queue.
PLACES = ("ready", "pending", "delayed", "unhandled", "parked", "dead")

#: The options of a schedule that are JSON.
JSON_OPTIONS = ("data", "args", "kwargs")


def as_dict(*views: Any) -> dict[str, Any]:
    """Return a view as JSON values. A consumer is passed after its supervisor; without one, it does housekeeping."""
    match views:
        case [QueueView() as queue]:
            counts = {**{place: getattr(queue, place) for place in PLACES}, "consumers": queue.alive}
            counts["fetched"] = queue.fetched
            busy, threads = queue.threads or (None, None)
            lanes = {"threads": threads, "busy": busy, "busy_with": _busy_with(queue)}
            states = {"paused": queue.paused, "external": queue.external}
            found = {"error": queue.error} if queue.error else {**states, **counts, **lanes}
            return {"queue": queue.name, **found, **_pause(queue.pause)}
        case [MessageView() as message]:
            return _message(message)
        case [GroupStats() as group]:
            return _group(group)
        case [ScheduleStatus() as schedule]:
            return _schedule(schedule)
        case [SupervisorView() as supervisor, ProcessView() as process]:
            return _consumer(supervisor, process)
        case [SupervisorView() as supervisor]:
            return _housekeeper(supervisor)
    raise TypeError(f"mq cannot show {repr_of(views)}")


def _message(view: MessageView) -> dict[str, Any]:
    """Return a message with what its state says about it."""
    data = view.data if view.has_data else None
    if view.state == "log":
        return {"entry": view.ref, "at": moment_text(view.at_ms), "id": view.id, "name": view.name, "data": data}
    row = {"id": view.id, "name": view.name, "attempt": view.attempt, "data": data}
    match view.state:
        case "dead":
            row |= {"reason": view.reason, "error": view.error}
        case "handled":
            took = None if view.seconds is None else round(view.seconds, 6)
            row |= {"ending": view.ending, "at": moment_text(view.at_ms), "seconds": took}
            row["consumer"] = view.consumer or None
        case "pending":
            row |= {"consumer": view.consumer, "held_s": view.held_ms // 1000}
        case "delayed" | "unhandled" | "parked":
            row["due"] = moment_text(view.at_ms)
    return row


def _pause(found: Pause | None) -> dict[str, Any]:
    if found is None:
        return {}
    return {"paused_by": found.who, "paused_since": moment_text(found.since_ms), "paused_reason": found.reason}


def progress_fields(progress: Progress | None) -> dict[str, Any]:
    """Return what a handler has reported; nothing if it does not report."""
    if progress is None:
        return {}
    fields = {"done": progress.done, "total": progress.total, "note": progress.note, "attempt": progress.attempt}
    return {"progress": {**fields, "at": moment_text(progress.at_ms)}}


def _busy_with(queue: QueueView) -> dict[str, Any] | None:
    """Return the handler that holds all threads or coroutines of a queue's consumers while its messages wait."""
    found = queue.blocker
    if found is None:
        return None
    return {"lanes": found.kind, "handler": found.name, "queue": found.queue, "ms": found.ms}


def _schedule(status: ScheduleStatus) -> dict[str, Any]:
    """Return a schedule with secrets replaced."""
    options = {name: redact(value) if name in JSON_OPTIONS else value for name, value in status.options.items()}
    state = "removed" if status.origin == "removed" else "paused" if status.paused else "on"
    return {
        "queue": status.queue,
        "name": status.name,
        "origin": status.origin,
        "when": None if status.when is None else str(status.when),
        "message": status.message,
        "state": "invalid" if status.problem else state,
        "next": moment_text(status.next_ms),
        "skips": [moment_text(tick.tick_ms) for tick in status.skips],
        "fired": moment_text(status.fired_ms),
        "problem": status.problem or None,
        "paused_by": status.paused_by or None,
        "paused": moment_text(status.paused_ms),
        "created_by": status.created_by or None,
        "created": moment_text(status.created_ms),
        "changed_by": status.changed_by or None,
        "changed": moment_text(status.changed_ms),
        "options": options or None,
    }


def _group(group: GroupStats) -> dict[str, Any]:
    return {
        "group": group.queue,
        "offset": group.offset,
        "lag": group.lag,
        "lag_s": group.lag_ms // 1000,
        "pending": group.pending,
        "retention": None if group.share is None else round(group.share, 3),
        "alarm": group.alarm,
        "lost": group.lost or None,
    }


def _consumer(supervisor: SupervisorView, process: ProcessView) -> dict[str, Any]:
    seen = supervisor.seen_ms_ago
    return {
        "consumer": process.id,
        "supervisor": supervisor.id,
        "state": process.state if supervisor.alive else "gone",
        "asked": process.asked,
        "host": supervisor.host,
        "pid": process.pid,
        "version": supervisor.version,
        "since_ms": process.since_ms,
        "heartbeat_s": None if seen is None else round(seen / 1000, 1),
        "threads": process.threads,
        "busy": process.busy,
        "queues": list(process.queues),
        "handled": process.handled,
        "failed": process.failed,
        "running": [
            {
                "queue": item.queue,
                "id": item.message.id,
                "name": item.message.name,
                "ms": item.ms,
                **progress_fields(item.progress),
            }
            for item in process.running
        ],
    }


def _housekeeper(supervisor: SupervisorView) -> dict[str, Any]:
    """Return a supervisor with the queues that it does not consume, in the form of a consumer."""
    process = ProcessView(
        id=supervisor.id,
        pid=None,
        threads=0,
        busy=None,
        coroutines=0,
        since_ms=None,
        state="running",
        asked=supervisor.asked,
        queues=supervisor.housekeeping,
        running=(),
        handled=0,
        failed=0,
    )
    return {**_consumer(supervisor, process), "state": "housekeeping"}
