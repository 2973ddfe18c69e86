"""A handler in a module that nothing imports: consumers find it by its source."""

from mq_django import Message, handler
from tests.consumers.project.history import note


@handler("default", "elsewhere")
def handle_elsewhere(message: Message) -> None:
    note("effect", id=message.id, queue=message.queue, attempt=message.attempt)
