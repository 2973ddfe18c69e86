"""What is kept of a step or a callback of a run until it is published."""

from collections.abc import Mapping, Sequence
from typing import Any

from mq_django.conf import get_config_if_valid
from mq_django.core.exceptions import repr_of
from mq_django.core.jsontext import dumps
from mq_django.core.publication import publication
from mq_django.core.publish_checks import check_headers, check_supported
from mq_django.errors import InvalidWorkflow, MQError
from mq_django.middleware import PublishCall, publishing_chain
from mq_django.producers.queues import queues
from mq_django.task_backend.backend import TaskBackend
from mq_django.task_backend.compat import AnyTask, Task
from mq_django.task_backend.publishing import DEFAULT, Publishing


def check_task(task: object) -> None:
    """Check that a task can be a step, or a callback.

    Raises:
        InvalidWorkflow: it is no task of mq_django, or it has a unique key or an expiry.
    """
    if not isinstance(task, Task) or not isinstance(task.get_backend(), TaskBackend):
        raise InvalidWorkflow(
            f"{repr_of(task, 200)} is not a task of mq_django: use @mq_django.task, or MQBackend in TASKS"
        )
    config = get_config_if_valid()
    try:
        if config is not None:
            check_supported(config.queue(task.queue_name), "step")
    except MQError as error:
        raise InvalidWorkflow(f"Task {task.module_path} cannot be a step: {error}") from error
    options: Publishing = getattr(task, "publishing", DEFAULT)
    if options.unique is not None or options.unique_for is not None:
        raise InvalidWorkflow(f"Task {task.module_path} has a unique key: give unique= to start() instead")
    if options.expires is not None:
        raise InvalidWorkflow(f"Task {task.module_path} expires: give expires= to the workflow instead")


def headers_of(task: AnyTask, message_id: str) -> Mapping[str, str]:
    """Return the headers that middleware adds to what is published here and now, for all steps that are defined here.

    A step is published later, by another process, in which middleware knows nothing of this one's request.

    Args:
        task: the task of the first of these steps.
        message_id: the id that its message will have.
    """
    middleware = publishing_chain()
    if middleware is None:
        return {}
    config = queues[task.queue_name].config
    message = publication(config, task.module_path, None).message._replace(id=message_id)
    headers: dict[str, str] = {}

    def take_headers(call: PublishCall) -> Sequence[str | None]:
        headers.update(check_headers(call.headers))
        return [message_id]

    middleware(PublishCall(config.name, [message], take_headers))
    return headers


def body_of(task: AnyTask, name: str, data: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
    """Return what is kept of a step or callback until it is published.

    Raises:
        InvalidWorkflow: it cannot be published.
    """
    options: Publishing = getattr(task, "publishing", DEFAULT)
    body: dict[str, Any] = {"queue": task.queue_name, "name": name, "data": data}
    if headers := {**headers, **options.all_headers}:
        body["headers"] = headers
    if task.priority:
        body["priority"] = task.priority
    if options.key is not None:
        body["key"] = options.key
    if options.delay is not None:
        body["delay"] = options.delay if isinstance(options.delay, int | float) else options.delay.total_seconds()
    if task.run_after is not None:
        body["due"] = task.run_after.isoformat()
    try:
        config = queues[task.queue_name].config
        publication(config, name, data, key=options.key, priority=task.priority, headers=headers)
    except MQError as error:
        raise InvalidWorkflow(f"Task {task.module_path} cannot be a step: {error}") from error
    return dumps(body)
