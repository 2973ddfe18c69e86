"""A browser without a window: cookies, forms, redirects."""

from http.client import HTTPConnection, HTTPException
from http.cookies import SimpleCookie
from types import TracebackType
from typing import Self
from urllib.parse import urlencode, urljoin, urlsplit

#: Seconds to wait for a page.
TIMEOUT = 10.0
MAX_REDIRECTS = 5


class PageFailed(Exception):
    """The site answered with an error, or not at all."""


class Browser:
    """One visitor's session."""

    def __init__(self, site: str) -> None:
        """Start without cookies."""
        address = urlsplit(site)
        self._connection = HTTPConnection(address.hostname or "", address.port, timeout=TIMEOUT)
        self._cookies: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def get(self, path: str) -> str:
        """Open a page and return the path that it ended at."""
        return self._open("GET", path)

    def submit(self, path: str, **fields: object) -> str:
        """Send a form, follow the redirect, and return the path that it ended at."""
        token = self._cookies.get("csrftoken", "")
        return self._open("POST", path, body=urlencode({**fields, "csrfmiddlewaretoken": token}))

    def _open(self, method: str, path: str, *, body: str | None = None) -> str:
        for _ in range(MAX_REDIRECTS):
            status, location = self._request(method, path, body)
            if location is None:
                if status >= 400:
                    raise PageFailed(f"{method} {path}: {status}")
                return path
            method, path, body = "GET", urljoin(path, location), None
        raise PageFailed(f"{path}: redirects without end")

    def _request(self, method: str, path: str, body: str | None) -> tuple[int, str | None]:
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self._cookies.items())}
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
            response.read()
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise PageFailed(f"{method} {path}: {error!r}") from error
        for line in response.headers.get_all("Set-Cookie") or ():
            self._cookies.update({name: item.value for name, item in SimpleCookie(line).items()})
        return response.status, response.headers["Location"] if 300 <= response.status < 400 else None
