"""Build the demo up, and take it down in the right order."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from example_project.demo.children import ROOT, Child, Guard, address, answers, listen
from example_project.demo.closing import Closing
from example_project.demo.surroundings import Surroundings

MANAGE = str(ROOT / "example_project" / "manage.py")
SITE_PORT = 8000
#: Seconds that handlers get to finish; less than a child is given to stop.
GRACE_SECONDS = 10
#: Consumers that end before this many seconds have a fault that a restart does not fix.
YOUNG = 3.0


class Stage:
    """The running demo: site, gateway and consumers."""

    def __init__(self, surroundings: Surroundings) -> None:
        """Start nothing yet."""
        self._surroundings = surroundings
        self._running: dict[str, Child] = {}
        self._guard: Guard | None = None
        self.site = ""

    @property
    def consumers(self) -> Child:
        """Return the supervisor of the consumers."""
        return self._running["consumers"]

    def open(self, closing: Closing) -> None:
        """Start all and wait until it works.

        Raises:
            ChildFailed: a process did not come up.
            Closed: somebody asked to end meanwhile.
        """
        listeners = {"gateway": self._surroundings.gateway, "web": listen(SITE_PORT)}
        addresses = {name: address(listener) for name, listener in listeners.items()}
        self.site = addresses["web"]
        self._start("gateway", "-m", "example_project.gateway", "--fd", listener=listeners["gateway"])
        self._start("web", "-m", "example_project.demo.website", listener=listeners["web"])
        self._start_consumers()
        for name, url in addresses.items():
            self._running[name].wait_until(partial(answers, url), closing=closing)

    def tend(self) -> None:
        """Start the consumers again if they died, as a process manager would.

        Raises:
            ChildFailed: another process has ended, or the consumers as soon as they had begun.
        """
        self._running["web"].check()
        self._running["gateway"].check()
        ended = self.consumers.process.poll()
        # A signal killed them, or they had lived for a while: in both cases they can live.
        if ended is not None and (ended < 0 or self.consumers.age > YOUNG):
            self._start_consumers()
        self.consumers.check()

    def close(self) -> None:
        """End all, and first of all what needs the others to finish."""
        if self._guard is not None:
            self._guard.dismiss()
        for name in ("consumers", "web", "gateway"):
            if name in self._running:
                self._running[name].stop()

    def _start_consumers(self) -> None:
        options = ("--processes", "2", "--threads", "8", "--grace", str(GRACE_SECONDS))
        self._start("consumers", MANAGE, "runconsumer", *options)
        if self._guard is not None:
            self._guard.dismiss()
        self._guard = Guard(list(self._running.values()))

    def _start(self, name: str, *arguments: str, listener: socket.socket | None = None) -> None:
        fds = [] if listener is None else [listener.fileno()]
        more = [*arguments, *map(str, fds)]
        around = self._surroundings
        self._running[name] = Child(name, more, folder=around.folder / "logs", env=around.env, fds=fds)
        if listener is not None:
            # It is the child's alone: when that is gone, nobody shall wait for an answer.
            listener.close()


@contextmanager
def running(surroundings: Surroundings, closing: Closing) -> Iterator[Stage]:
    """Start gateway, site and consumers, and wait until they work; end them on leaving."""
    stage = Stage(surroundings)
    try:
        stage.open(closing)
        yield stage
    finally:
        stage.close()
