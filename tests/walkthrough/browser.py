"""A browser without a window."""

import html
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.cookiejar import CookieJar

from tests.waiting import wait_until


class Browser:
    """Opens pages and presses buttons."""

    def __init__(self) -> None:
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        self._at = ""

    def open(self, path: str, fields: dict[str, str] | None = None) -> str:
        body = urllib.parse.urlencode(fields).encode() if fields else None
        with self._opener.open(urllib.parse.urljoin(self._at, path), body, timeout=30) as answer:
            self._at = answer.url
            return html.unescape(answer.read().decode())

    def wait_for(self, address: str) -> str:
        """Open a page of a server that may be loading new code."""
        return self._patiently(lambda: self.open(address), address)

    def log_in(self, address: str, **fields: str) -> str:
        """Open the page to log in, of such a server, and send its form; return the page that follows."""
        return self._patiently(lambda: self.press(self.open(address), "login-form", **fields), address)

    def _patiently(self, visit: Callable[[], str], address: str) -> str:
        def seen() -> str:
            try:
                return visit()
            except (urllib.error.URLError, ConnectionError):
                return ""

        return wait_until(seen, timeout=30, message=address)

    def press(self, page: str, name: str, **fields: str) -> str:
        """Send the form of this class or id, filled in."""
        (form,) = (form for form in re.findall(r"<form .*?</form>", page, re.DOTALL) if f'="{name}"' in form)
        hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form))
        action = re.search(r'<form [^>]*action="([^"]*)"', form)
        return self.open(action[1] if action else "", {**hidden, **fields})
