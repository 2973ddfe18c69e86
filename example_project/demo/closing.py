"""Ctrl-C, and what else asks the demo to end."""

import signal


class Closing:
    """Count the requests to end: `asked` is true from the first, and the second one hurries."""

    def __init__(self) -> None:
        """Nobody asked yet."""
        self.asked = 0

    def listen(self) -> None:
        """Take Ctrl-C, SIGTERM and the end of the terminal as requests; needs the main thread."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self._ask)
        # Under nohup it is ignored, and stays so.
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._ask)

    def _ask(self, *_: object) -> None:
        # Only counted: an exception raised here could come up in the midst of a clean-up.
        self.asked += 1
