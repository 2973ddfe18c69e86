"""Results of tasks whose messages wait in an outbox."""

from collections.abc import Sequence

from django.utils.module_loading import import_string

from mq_django.conf import QueueConfig, get_config
from mq_django.core.publication import Publication
from mq_django.producers.waiting_messages import FIND_ROW, has_rows
from mq_django.stores.results import Result


def result_in_outbox(result_id: str, configs: Sequence[QueueConfig]) -> Result | None:
    """Return the result of a task whose message no relay has published yet; None if there is none."""
    names = dict.fromkeys(config.public_name for config in configs if has_rows(config))
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
