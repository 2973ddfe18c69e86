"""Whether a `runconsumer` is alive, ready and started, for its probes over HTTP."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from mq_django.consumers.liveness import STUCK
from mq_django.consumers.supervisor.health_server import Answer, Route
from mq_django.consumers.supervisor.heartbeat import Heartbeat

#: A server of Redis answers if a heartbeat has reached it within this many intervals, and at least so many seconds.
MISSED_BEATS = 3
SHORTEST = 5.0
#: Seconds that a main loop without recent progress gets to show some: the whole process may have been stopped.
SECOND_LOOK = 0.5


class Check(NamedTuple):
    """One part of a probe."""

    name: str
    ok: bool
    sentence: str


class MainLoop(NamedTuple):
    """What the main loop of a supervisor has seen in its latest round."""

    #: On the monotonic clock.
    at: float
    #: Consumers that have started and are announced, and how many should run. 0: it starts no consumers.
    ready: int
    processes: int
    #: Services that have ended or are stuck.
    stuck: Sequence[str]
    stopping: bool
    #: It was asked to reload (SIGHUP), or executes the command line again, and has not finished yet.
    reloading: bool = False
    #: How often it was asked to reload.
    reloads: int = 0


class Health:
    """What the probes of a `runconsumer` find. The main loop reports to it, and any thread may ask it."""

    def __init__(self) -> None:
        self._heartbeats: Sequence[Heartbeat] = ()
        self._loop: MainLoop | None = None
        self._has_started = False

    def watch(self, heartbeats: Sequence[Heartbeat]) -> None:
        """Judge by these heartbeats whether Redis answers: one for each server."""
        self._heartbeats = heartbeats

    def report(self, found: MainLoop) -> None:
        """Take over what the main loop has seen."""
        self._loop = found
        if not self._has_started:
            self._has_started = all(check.ok for check in self.ready())

    @property
    def loop(self) -> MainLoop | None:
        """Return what the main loop has seen last, or None before its first round."""
        return self._loop

    def live(self) -> list[Check]:
        """Return whether the loops of the supervisor go on. An outage of Redis does not stop them."""
        return [self._main_loop(), self._services()]

    def ready(self) -> list[Check]:
        """Return whether messages are handled."""
        return [*self.live(), self._consumers(), self._redis(), self._running()]

    def startup(self) -> list[Check]:
        """Return whether messages have been handled at least once since the start: the process is ready or was."""
        if self._has_started:
            return [Check("startup", True, "The consumers have started.")]
        return self.ready()

    def routes(self) -> dict[str, Route]:
        """Return the paths of the probes."""
        return {"/live": _route(self.live), "/ready": _route(self.ready), "/startup": _route(self.startup)}

    def _main_loop(self) -> Check:
        if self._loop is None:
            # A start that takes too long is for the startup probe.
            return Check("main loop", True, "The supervisor is starting.")
        if time.monotonic() - self._loop.at > STUCK:
            time.sleep(SECOND_LOOK)
        still = time.monotonic() - self._loop.at
        if still > STUCK:
            return Check("main loop", False, f"The main loop is stuck for {still:.0f} s.")
        return Check("main loop", True, "The main loop goes on.")

    def _services(self) -> Check:
        stuck = self._loop.stuck if self._loop is not None else ()
        return Check("services", not stuck, f"{'; '.join(stuck)}." if stuck else "The services go on.")

    def _consumers(self) -> Check:
        if self._loop is None:
            return Check("consumers", False, "No consumer was started yet.")
        if not self._loop.processes:
            return Check("consumers", True, "It starts no consumers, and does only the housekeeping.")
        ready, processes = self._loop.ready, self._loop.processes
        # One that died is replaced: the others handle messages meanwhile.
        enough = 1 if self._has_started else processes
        return Check("consumers", ready >= enough, f"{ready} of {processes} consumers are ready.")

    def _redis(self) -> Check:
        answers = [_answers(heartbeat) for heartbeat in self._heartbeats]
        silent = [answer.sentence for answer in answers if not answer.ok]
        # Queues on the other servers are handled.
        is_ok = len(silent) < len(answers)
        sentences = silent or [answer.sentence for answer in answers] or ["Redis was not asked yet."]
        return Check("redis", is_ok, " ".join(sentences))

    def _running(self) -> Check:
        stopping = self._loop is not None and self._loop.stopping
        return Check("running", not stopping, "It is shutting down." if stopping else "It is not shutting down.")


def _answers(heartbeat: Heartbeat) -> Check:
    # With several servers, the name of a heartbeat has its queues. Addresses are not for everybody.
    redis = f"Redis{heartbeat.name.removeprefix(Heartbeat.name)}"
    if heartbeat.answered is None:
        return Check("redis", False, f"{redis} has not answered yet.")
    ago = time.monotonic() - heartbeat.answered
    if ago > max(SHORTEST, MISSED_BEATS * heartbeat.interval):
        return Check("redis", False, f"{redis} has not answered a heartbeat for {ago:.1f} s.")
    return Check("redis", True, f"{redis} has answered a heartbeat {ago:.1f} s ago.")


def _route(probe: Callable[[], Sequence[Check]]) -> Route:
    """Return the function that answers a probe."""

    def answer() -> Answer:
        checks = probe()
        is_ok = all(check.ok for check in checks)
        found: Mapping[str, object] = {
            "status": "ok" if is_ok else "failing",
            "checks": [check._asdict() for check in checks],
        }
        return Answer(200 if is_ok else 503, "application/json", json.dumps(found).encode())

    return answer
