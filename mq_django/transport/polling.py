"""Poll one socket, on every system."""

import select
from collections.abc import Callable
from typing import Any


class Select:
    """Replaces `select.poll` for one socket on Windows, which has no poll."""

    def register(self, sock: Any, _mask: int) -> None:
        self._sock = sock

    def poll(self, timeout: int) -> list[Any]:
        return select.select([self._sock], [], [], timeout / 1000)[0]


#: Returns an object that checks whether a socket can be read.
poll: Callable[[], Any] = getattr(select, "poll", Select)
POLLIN: int = getattr(select, "POLLIN", 1)
