"""Stored results in the form of Django's TaskResult."""

from dataclasses import replace
from typing import Any

from mq_django.core.attempts import SUCCESSFUL
from mq_django.stores.results import Result
from mq_django.task_backend.compat import AnyResult, AnyTask
from mq_django.task_backend.running import MAX_ATTEMPT, moment
from mq_django.task_backend.task_api import TaskAPI


def task_result(found: Result, task: AnyTask, api: TaskAPI, result_id: str) -> AnyResult:
    """Return a stored result as a TaskResult."""
    runs, attempts = found.runs, found.attempts
    last = attempts[-1] if attempts else None
    result: AnyResult = api.result(
        task=_as_enqueued(task, api, found),
        id=result_id,
        status=api.status(found.status),
        enqueued_at=moment(found.enqueued_ms),
        started_at=moment(runs[0].started_ms) if runs else None,
        last_attempted_at=moment(runs[-1].started_ms) if runs else None,
        finished_at=moment(last.finished_ms) if last and found.has_ended else None,
        args=found.data["args"],
        kwargs=found.data["kwargs"],
        backend=task.backend,
        errors=[
            api.attempt_error(exception_class_path=each.error, traceback=each.traceback or "")
            for each in attempts
            if each.error
        ],
        worker_ids=_workers(found),
    )
    if last is not None and found.status == SUCCESSFUL:
        object.__setattr__(result, "_return_value", last.value)
    return result


def _as_enqueued(task: AnyTask, api: TaskAPI, found: Result) -> AnyTask:
    """Return the task with the options with which it was enqueued."""
    options: dict[str, Any] = {"queue_name": found.queue, "priority": found.priority, "run_after": moment(found.due_ms)}
    if options == {name: getattr(task, name) for name in options}:
        return task
    try:
        return replace(task, **options)
    except api.invalid_task:  # its queue was removed from the settings
        return task


def _workers(found: Result) -> list[str]:
    """Return the consumer of each attempt; "" for one whose process died before it stored that."""
    names: list[str] = []
    for attempt in found.runs:
        names += [""] * (min(attempt.number, MAX_ATTEMPT) - 1 - len(names))
        names.append(attempt.consumer)
    return names
