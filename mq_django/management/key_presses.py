"""Read single keys from a terminal."""

import os
import select
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import Any

# Windows has neither.
_termios: Any = import_module("termios") if find_spec("termios") else None
_tty: Any = import_module("tty") if find_spec("termios") else None

#: What a key press at the end of the input is.
END = "\x04"


class KeyPresses:
    """Inside it, keys are read without Enter and not shown. Without a terminal, or on Windows, there are none."""

    def __init__(self) -> None:
        self._before: Any = None

    def __enter__(self) -> "KeyPresses":
        if _termios is not None and sys.stdin.isatty():
            self._before = _termios.tcgetattr(sys.stdin)
            # Ctrl-C still interrupts.
            _tty.setcbreak(sys.stdin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._before is not None:
            _termios.tcsetattr(sys.stdin, _termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> str:
        """Return the next key that is pressed within `seconds`; empty if there was none."""
        if self._before is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return (os.read(sys.stdin.fileno(), 1).decode(errors="replace") or END) if ready else ""
