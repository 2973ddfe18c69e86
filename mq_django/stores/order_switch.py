"""Switch the order of a queue on or off: not while a supervisor or a delivery goes by the other setting."""

import time

from mq_django.conf import QueueConfig
from mq_django.core.logs import get_logger
from mq_django.transport import scripts
from mq_django.transport.sessions import Wire, reply_or_raise

logger = get_logger(__name__)

#: Seconds until a consumer asks again whether it may use the queue.
ASK_AGAIN = 1.0


class OrderSwitch:
    """Lets one consumer wait until the queue has the order of its settings. See `lua/lines_begin.lua`."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._config = config
        self._wire = wire
        #: When to ask again, by the monotonic clock; None: the queue has this order, as far as is known.
        self._ask_at: float | None = None
        #: Whether the log has a warning about consumers with the other setting.
        self._has_warned = False

    def rest(self) -> float:
        """Return for how many seconds this consumer may not take messages."""
        if self._ask_at is not None and time.monotonic() >= self._ask_at:
            self.begin()
        ask_at = self._ask_at
        return 0.0 if ask_at is None else max(0.001, ask_at - time.monotonic())

    def begin(self) -> None:
        """Give the queue the order of the settings, if nobody goes by the other setting."""
        keys, ordered = self._config.keys, self._config.ordered
        key_names = [keys.control, keys.consumers, keys.ready, keys.urgent, keys.permit_wakeups, keys.permits]
        hold = ordered and self._config.after_bury == "hold"
        args = [keys.group, "1" if ordered else "0", "1" if hold else "0"]
        reply = reply_or_raise(self._wire.trip([scripts.command("lines_begin", keys=key_names, args=args)])[0])
        if reply == b"BEGUN":
            self._ask_at, self._has_warned = None, False
            return
        self._ask_at = time.monotonic() + ASK_AGAIN
        if not self._has_warned:
            self._has_warned = True
            text = "Queue %s waits until all consumers that were started with another ORDERED have ended"
            logger.warning(text, self._config.name)
