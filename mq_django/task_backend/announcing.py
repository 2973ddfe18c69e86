"""Django's signals about tasks, sent when somebody hears them."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.dispatch import Signal

from mq_django.task_backend.compat import (
    LOGGER,
    AnyResult,
    log_task_enqueued,
    log_task_finished,
    log_task_started,
    task_enqueued,
    task_finished,
    task_started,
)

_logger = logging.getLogger(LOGGER)


@dataclass(frozen=True, slots=True)
class TaskSignal:
    """One of Django's signals about tasks, to which Django itself listens in order to log."""

    signal: Signal
    logs: Callable[..., Any]

    def heard(self, level: int) -> bool:
        """Tell whether anybody would notice: to build a result for nobody takes longer than a short task."""
        return self._others_listen() or _logger.isEnabledFor(level)

    def _others_listen(self) -> bool:
        receivers = self.signal.receivers
        return len(receivers) != 1 or receivers[0][0][0] != id(self.logs)

    def send(self, sender: type, result: AnyResult, error: BaseException | None = None) -> None:
        """Send the signal; with `error`, as while that is handled: Django's log shows it."""
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
        """Send the signal from an event loop, where receivers that use the database need a thread."""
        if not self._others_listen():
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


ENQUEUED = TaskSignal(task_enqueued, log_task_enqueued)
STARTED = TaskSignal(task_started, log_task_started)
FINISHED = TaskSignal(task_finished, log_task_finished)
