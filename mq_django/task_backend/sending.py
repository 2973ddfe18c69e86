"""Publish the messages of tasks, and make the results of tasks that are enqueued."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.utils.module_loading import import_string

from mq_django.conf import QueueConfig, get_config
from mq_django.core import clock
from mq_django.core.publication import Publication, publication, publications
from mq_django.core.retries import SUCCESSFUL, Attempt
from mq_django.errors import InvalidMessage
from mq_django.producers.queues import FIND_ROW, queues
from mq_django.producers.sinks import choose_sink, send
from mq_django.stores.results import Result, error_path
from mq_django.task_backend.compat import AnyResult, AnyTask
from mq_django.task_backend.running import MAX_ATTEMPT, NO_ERROR, moment
from mq_django.task_backend.task_api import TaskAPI, TaskSignal
from mq_django.task_backend.task_options import DEFAULT, Publishing, has_arguments


def _options(task: AnyTask) -> Publishing:
    """Return the options of publishing. A task that was made for another backend has none."""
    options: Publishing = getattr(task, "publishing", DEFAULT)
    return options


def _sending(task: AnyTask, *, on_commit: bool) -> dict[str, Any]:
    """Return the options of send(). `on_commit` applies if the task does not have that option."""
    options = _options(task)
    return {
        "using": options.using,
        "on_commit": on_commit if options.on_commit is None else options.on_commit,
        "robust": options.robust,
        "outbox": options.outbox,
    }


def _send(task: AnyTask, made: Sequence[Publication], *, on_commit: bool) -> Sequence[str | None]:
    return send(made, queues[task.queue_name].sink, **_sending(task, on_commit=on_commit))


def send_one(task: AnyTask, arguments: Mapping[str, Any], *, on_commit: bool) -> tuple[Publication, str]:
    """Publish a task's message. Return it, and its id or that of the message that keeps its unique key.

    `on_commit` applies if the task does not have that option.
    """
    options = _options(task)
    made = publication(
        queues[task.queue_name].config,
        task.module_path,
        arguments,
        deliver_at=task.run_after,
        priority=task.priority,
        published_ms=clock.now_ms(),
        runs_task=True,
        **options.for_one(),
        **options.for_all(),
    )
    return made, _send(task, [made], on_commit=on_commit)[0] or made.message.id


def send_many(task: AnyTask, arguments: Sequence[Mapping[str, Any]], *, on_commit: bool) -> list[Publication]:
    """Publish a message of the task for each of the arguments, and return the messages.

    Raises:
        InvalidMessage: the task has an option that only one message can have.
    """
    options = _options(task)
    if one := [option for option, value in options.for_one().items() if value is not None]:
        raise InvalidMessage(f"Task {task.module_path} cannot be enqueued many times at once: it has {one[0]}=")
    made = publications(
        queues[task.queue_name].config,
        [(task.module_path, each) for each in arguments],
        deliver_at=task.run_after,
        priority=task.priority,
        runs_task=True,
        **options.for_all(),
    )
    if made:
        _send(task, made, on_commit=on_commit)
    return made


def find_waiting(task: AnyTask, message_id: str) -> tuple[Mapping[str, Any], int | None]:
    """Return the arguments and the time of a waiting message; no arguments and no time if they are unknown."""
    found = queues[task.queue_name].find(message_id).message
    if found is not None and has_arguments(found.data):
        return found.data, found.published_ms
    return {"args": [], "kwargs": {}}, None


def new_result(
    api: TaskAPI, task: AnyTask, message_id: str, arguments: Mapping[str, Any], enqueued_ms: int | None
) -> AnyResult:
    """Return the result of a task that is enqueued."""
    result: AnyResult = api.result(
        task=task,
        id=message_id,
        status=api.status.READY,
        enqueued_at=moment(enqueued_ms),
        started_at=None,
        last_attempted_at=None,
        finished_at=None,
        args=[],
        kwargs={},
        backend=task.backend,
        errors=[],
        worker_ids=[],
    )
    # Set directly, because the result's own conversion to JSON takes longer than the rest of enqueue().
    for name in ("args", "kwargs"):
        object.__setattr__(result, name, arguments[name])
    return result


def announce(signal: TaskSignal, sender: type, task: AnyTask, results: Sequence[AnyResult], *, on_commit: bool) -> None:
    """Send Django's signal for each result, after the commit that the messages wait for, or else at once."""
    if not signal.is_needed(logging.DEBUG):
        return

    def send_task_enqueued() -> None:
        for result in results:
            signal.send(sender, result)

    queue = queues[task.queue_name]
    alias = choose_sink(queue.config, queue.sink, **_sending(task, on_commit=on_commit)).awaits
    if alias is None:
        send_task_enqueued()
    else:
        transaction.on_commit(send_task_enqueued, using=alias, robust=True)


# Results of tasks whose messages wait in an outbox.


def is_by_outbox(task: AnyTask) -> bool:
    """Return whether an outbox may have the messages of a task, so that their results do not exist yet."""
    chosen = _options(task).outbox
    return bool(queues[task.queue_name].config.outbox) if chosen is None else chosen


def result_in_outbox(result_id: str, configs: Sequence[QueueConfig]) -> Result | None:
    """Return the result of a task whose message no relay has published yet; None if there is none."""
    names = dict.fromkeys(config.public_name for config in configs if config.outbox)
    for config in [get_config().queue(name) for name in names]:
        row: Publication | None = import_string(FIND_ROW)(config, result_id)
        if row is not None:
            message, _, options = row
            return Result(
                queue=message.queue,
                name=message.name,
                data=message.data,
                enqueued_ms=message.published_ms,
                due_ms=options.due_ms,
                priority=message.priority,
                attempts=(),
            )
    return None


# Stored results in the form of Django's TaskResult.


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
        errors=[_attempt_error(each, api) for each in attempts if each.error or each.status != SUCCESSFUL],
        worker_ids=_workers(found),
    )
    if last is not None and found.status == SUCCESSFUL:
        object.__setattr__(result, "_return_value", last.value)
    return result


def _attempt_error(attempt: Attempt, api: TaskAPI) -> Any:
    traceback = attempt.traceback or ("" if attempt.error else NO_ERROR)
    return api.attempt_error(exception_class_path=attempt.error or error_path(""), traceback=traceback)


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
