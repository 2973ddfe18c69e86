"""Find the result of a task by its id, without knowing the task."""

from contextlib import suppress

from django.conf import settings

from mq_django.core.exceptions import text_of
from mq_django.core.visible import line
from mq_django.producers.asynchronous import asynchronous
from mq_django.task_backend.backend import TaskBackend, find_anywhere
from mq_django.task_backend.compat import AnyResult, TaskResultDoesNotExist, task_backends


def get_result(result_id: str) -> AnyResult:
    """Return the result of an enqueued task, whatever its task, queue and backend.

    Looks in all queues of this project, in one round trip to each server, and then asks the other backends in TASKS.

    Args:
        result_id: the `id` of the result that `enqueue()` returned.

    Returns:
        The result as it is now.

    Raises:
        TaskResultDoesNotExist: there is no result, it has expired, or this process has no task of its path.
        StoreError: Redis cannot be reached, or refuses the command.
        ConfigurationError: `MQ_DJANGO` cannot be used.
    """
    text = text_of(result_id)
    found = find_anywhere(text)
    if found is not None:
        return found
    for alias in getattr(settings, "TASKS", {}):
        backend = task_backends[alias]
        if isinstance(backend, TaskBackend):
            continue
        # The DummyBackend finds its results, though it does not say so.
        with suppress(TaskResultDoesNotExist, NotImplementedError):
            return backend.get_result(text)
    raise TaskResultDoesNotExist(line(text[:300]))


aget_result = asynchronous(get_result)
