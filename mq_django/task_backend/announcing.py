"""Django's signals about tasks, which are sent only if there are receivers."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.dispatch import Signal

from mq_django.task_backend.compat import AnyResult


@dataclass(frozen=True, slots=True)
class TaskSignal:
    """One of Django's signals about tasks. Django itself has a receiver that logs."""

    signal: Signal
    logs: Callable[..., Any]
    logger: logging.Logger

    def is_needed(self, level: int) -> bool:
        """Return whether there are other receivers, or Django logs this level.

        If not, the caller need not build a result, which takes longer than a short task.
        """
        return self._has_other_receivers() or self.logger.isEnabledFor(level)

    def _has_other_receivers(self) -> bool:
        receivers = self.signal.receivers
        return len(receivers) != 1 or receivers[0][0][0] != id(self.logs)

    def send(self, sender: type, result: AnyResult, error: BaseException | None = None) -> None:
        """Send the signal. With an `error` it is sent inside `except`, so that Django logs the traceback."""
        if error is None:
            self.signal.send(sender, task_result=result)
            return
        found = error.__traceback__
        try:
            raise error  # noqa: TRY301 - there is nothing to call
        except BaseException:  # noqa: BLE001 - it ends here
            error.__traceback__ = found
            self.signal.send(sender, task_result=result)

    async def asend(self, sender: type, result: AnyResult, error: BaseException | None = None) -> None:
        """Send the signal on an event loop. Receivers that are not coroutine functions run in a thread."""
        if not self._has_other_receivers():
            self.send(sender, result, error)
        elif error is None:
            await self.signal.asend(sender, task_result=result)
        else:
            found = error.__traceback__
            try:
                raise error  # noqa: TRY301 - there is nothing to call
            except BaseException:  # noqa: BLE001 - it ends here
                error.__traceback__ = found
                await self.signal.asend(sender, task_result=result)
