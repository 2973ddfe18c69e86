"""Text that is the same in every run: what differs has a name of its kind, and what was equal stays equal."""

import math
import re
import socket
import sys
from datetime import datetime

MINUTE = 60_000
#: Times are told in steps of so many minutes, so that it does not matter how long a test takes.
STEP = 5
#: A number that is further from now than this, in ms, is no time.
FAR = 400 * 24 * 60 * MINUTE

#: What differs, by kind. An earlier kind goes before a later one.
_VOLATILE = re.compile(
    rf"""
    (?P<traceback>Traceback\ \(most\ recent\ call\ last\):.*?)(?=ValueError:\ )
    |(?P<own>(?<="pid":)\d+|(?<="took_ms":)\d+
        |(?<="(?:host|boot|pids)":)"[^"]*"|(?<="started":)"[^"]*"|(?<="version":)"[^"]*")
    |(?P<entry>\b\d{{13}}-\d+\b)
    |(?P<member>{re.escape(socket.gethostname())}-\d+-[0-9a-z]{{13}}(?:-[0-9a-z]+)?)
    |(?P<moment>\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00))
    |(?P<place>\b00\d{{13}}-\d{{10}}-\d+\b)
    |(?P<rsmq>\b[0-9a-z]{{10}}[0-9A-Za-z]{{22}}\b)
    |(?P<number>\b(?:\d{{10}}|\d{{13}}(?:\.\d{{1,4}})?|\d{{16}})\b)
    |(?P<id>\b(?=\d*[a-z])(?=[a-z]*\d)[0-9a-z]{{14,30}}\b)
    |(?P<token>\b(?=\d*[a-z])(?=[a-z]*\d)[0-9a-z]{{13}}\b)
    """,
    re.VERBOSE | re.DOTALL,
)

#: What a number of so many digits counts, in ms.
_UNITS = {10: 1000.0, 13: 1.0, 16: 0.001}


def minutes(ms: float) -> int:
    """Return a distance in minutes, a multiple of five, of which four and a half may have passed since."""
    return STEP * math.ceil(ms / MINUTE / STEP - 0.1)


class Normal:
    """Replaces ids by `<id 1>`, `<id 2>` ... in the order in which they come, and times by their distance from now."""

    def __init__(self, now_ms: float) -> None:
        self._now_ms = now_ms
        self._numbers: dict[str, int] = {}
        self._counts: dict[str, int] = {}

    def text(self, text: str) -> str:
        """Return a text in which the same id has the same name as in all texts before."""
        return _VOLATILE.sub(self._named, text)

    def alike(self, text: str) -> str:
        """Return a text in which all ids have one name."""
        return _VOLATILE.sub(self._alike, text)

    def known(self, text: str) -> list[int]:
        """Return the numbers in the names of the ids in a text; an id without a name comes behind all others."""
        return [self._numbers.get(found[0], sys.maxsize) for found in _VOLATILE.finditer(text)]

    def _named(self, found: re.Match[str]) -> str:
        alike = self._alike(found)
        if found.lastgroup not in ("member", "rsmq", "id", "token"):
            # Entries of two streams may be equal by chance.
            return alike
        if found[0] not in self._numbers:
            self._numbers[found[0]] = self._counts[alike] = self._counts.get(alike, 0) + 1
        return f"{alike[:-1]} {self._numbers[found[0]]}>"

    def _alike(self, found: re.Match[str]) -> str:
        if found.lastgroup == "moment":
            return self._time(found[0], datetime.fromisoformat(found[0]).timestamp() * 1000)
        if found.lastgroup == "number":
            return self._time(found[0], float(found[0]) * _UNITS[len(found[0].partition(".")[0])])
        return f"<{found.lastgroup}>"

    def _time(self, text: str, ms: float) -> str:
        if abs(ms - self._now_ms) > FAR:
            return text
        distance = minutes(ms - self._now_ms)
        if distance < 0:
            return "<past>"
        return f"<now {distance:+} min>" if distance else "<now>"
