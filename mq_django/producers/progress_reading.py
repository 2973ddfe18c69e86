"""Read the progress of a message or task."""

from mq_django.conf import QueueConfig, get_config
from mq_django.core.publish_checks import check_text
from mq_django.core.reports import Progress
from mq_django.producers.asynchronous import asynchronous
from mq_django.stores.progress_reports import read_progress_in


class ProgressReader:
    """The methods of a queue that read the progress of its messages."""

    config: QueueConfig

    def progress(self, message_id: str) -> Progress | None:
        """Return what the handler of a message has reported last by `mq_django.progress()`.

        It is kept for an hour after the message was handled, and for a week while it is not.

        Args:
            message_id: its id, as publish() returned it.

        Returns:
            The progress, or None if none is known: the handler has not started, or does not report.

        Raises:
            InvalidMessage: the id is not text.
            StoreError: Redis cannot be reached, or refuses the command.
            ConfigurationError: CONNECTION cannot be used.
        """
        return read_progress_in(self.config.places_of(check_text("message_id", message_id)), message_id)

    aprogress = asynchronous(progress)


def get_progress(task: object) -> Progress | None:
    """Return what a task, or the handler of a message, has reported last by `mq_django.progress()`.

    All queues are asked, and of a queue with PARTITIONS the one that a generated id names. `Queue.progress()` asks only
    one queue.

        result = import_prices.enqueue(7)
        found = get_progress(result)
        percent = None if found is None or found.fraction is None else round(found.fraction * 100)

    Args:
        task: the result that `enqueue()` or `get_result()` has returned, or its id as text. The id of a message is
            accepted, too.

    Returns:
        The progress, or None if none is known: the task has not started, or does not report.

    Raises:
        InvalidMessage: it is neither a result nor text.
        StoreError: Redis cannot be reached, or refuses the command.
        ConfigurationError: `MQ_DJANGO` cannot be used.
    """
    message_id = check_text("task", task if isinstance(task, str) else getattr(task, "id", task))
    return read_progress_in(get_config().places_of(message_id), message_id)


aget_progress = asynchronous(get_progress)
