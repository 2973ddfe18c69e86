"""What middleware has in common: running an attempt within a block, and which messages get headers."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from asgiref.sync import iscoroutinefunction

from mq_django.conf import get_config
from mq_django.core.outcomes import Outcome
from mq_django.middleware import AsyncHandle, Handle, Handling, PublishCall

#: Is called with the outcome of an attempt.
Ended = Callable[[Outcome], object]


def around(handle: Any, within: Callable[[Handling], AbstractContextManager[Ended]]) -> Handle | AsyncHandle:
    """Return a middleware for functions or coroutine functions.

    `within` makes a context manager of a handling, for the time of the attempt. Its value is called with the outcome of
    what `handle` runs.
    """

    async def amiddleware(handling: Handling) -> Outcome:
        with within(handling) as ended:
            outcome: Outcome = await handle(handling)
            ended(outcome)
        return outcome

    def middleware(handling: Handling) -> Outcome:
        with within(handling) as ended:
            outcome: Outcome = handle(handling)
            ended(outcome)
        return outcome

    return amiddleware if iscoroutinefunction(handle) else middleware


def may_add_headers(call: PublishCall) -> bool:
    """Return whether headers can be added to the messages of a call.

    In RSMQ's format a text is sent as it is. With headers it would be JSON, which other programs do not expect.
    """
    config = get_config().queues.get(call.queue)
    text_name = None if config is None else config.text_name
    return text_name is None or not any(
        message.name == text_name and isinstance(message.data, str) for message in call.messages
    )
