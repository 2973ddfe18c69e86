"""18: what a handler calls is away for a while: its messages wait for it uncharged, and the others go on."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import redis

from tests.chaos import places
from tests.chaos.checker import Ending, Terms, Verdict, Violation, check, violations_of
from tests.chaos.deliveries import Told, exposed
from tests.chaos.history import Event
from tests.chaos.settings import MAX_ATTEMPTS, PARTNER_FLAG, PARTNER_PROBE
from tests.chaos.stage import RECOVERY, Stage
from tests.waiting import wait_until

#: Seconds after which all consumers know that it is open.
HEARD = 2.0
#: Calls that are published before the partner goes, and again and again while it is away.
CALLS = 100
#: Consumers that are killed while it is away.
KILLS = 3
#: The most of the others that are left while they keep up.
MOST_LEFT = 200


class PartnerStage(Stage):
    """A stage whose partner may be away."""

    def judge(self, events: Sequence[Event], ending: Ending) -> Verdict:
        """Return the verdict: what a fault hit goes on soon, or when the partner is back."""
        absence = max((back.at - gone.at for gone, back in _turns(events)), default=0.0)
        verdict = check(events, ending, Terms(max_attempts=MAX_ATTEMPTS, recovery=RECOVERY + absence))
        verdict.violations += judged(events)
        return verdict


def play(stage: Stage, rounds: int) -> None:
    """Let the partner go, hit consumers and Redis meanwhile, and let it come back."""
    for _ in range(rounds):
        stage.producer.publish("call", CALLS)
        stage.pause(0.3, 0.6)
        _turn(stage, is_away=True)
        stage.producer.publish("call", CALLS)
        wait_until(lambda: _holds(stage) == 1, timeout=30, message="the breaker opens")
        for _ in range(KILLS):
            stage.pause(0.3, 0.6)
            stage.kill(stage.working())
            stage.producer.publish("call", CALLS)
        stage.kill_redis(0.1, 0.8)
        stage.producer.publish("call", CALLS)
        wait_until(lambda: _others_left(stage) < MOST_LEFT, timeout=30, message="other names go on")
        stage.pause(PARTNER_PROBE, 2 * PARTNER_PROBE)
        _turn(stage, is_away=False)
        wait_until(lambda: _holds(stage) == 0, timeout=30, message="the breaker closes")


def _turn(stage: Stage, *, is_away: bool) -> None:
    flag = stage.folder / PARTNER_FLAG
    if is_away:
        flag.touch()
    else:
        flag.unlink()
    stage.history.note("partner", away=is_away)


def _holds(stage: Stage) -> int | None:
    with suppress(redis.RedisError), stage.client as client:
        return int(client.hlen(stage.keys.holds))
    return None


def _others_left(stage: Stage) -> float:
    with suppress(redis.RedisError), stage.client as client:
        return places.left(client, stage.keys) - int(client.zcount(stage.keys.parked, "-inf", "(0"))
    return float("inf")


def judged(events: Sequence[Event]) -> Iterator[Violation]:
    """Yield what the breaker has not kept.

    P1   while the breaker is open, and all consumers know that, the partner gets one call a probe
    P2   nothing that waits for it is charged an attempt, or buried
    P3   the breaker opens once each time that the partner goes
    """
    turns = list(_turns(events))
    for gone, back in turns:
        yield from _judge_absence(events, gone.at, back.at)
    opened = sum(event.what == "opened" for event in events)
    if opened > len(turns):
        yield Violation("P3", f"the breaker opened {opened} times, and the partner went {len(turns)} times")
    told = Told(events)
    killed = {name for fault in told.faults if fault.kind == "kill" for name in exposed(told, fault)}
    calls = _of_calls(events, "effect")
    charged = [event.id for event in calls if event.told["attempt"] != 1 and event.id not in killed]
    yield from violations_of("P2", charged, "calls were charged an attempt")
    yield from violations_of("P2", [name for name, life in told.lives.items() if life.buried], "messages were buried")


def _turns(events: Iterable[Event]) -> Iterator[tuple[Event, Event]]:
    """Yield when the partner went, and when it was back."""
    turns = [event for event in events if event.what == "partner"]
    return zip(turns[::2], turns[1::2], strict=False)


def _judge_absence(events: Sequence[Event], gone: float, back: float) -> Iterator[Violation]:
    opened = min((event.at for event in events if event.what == "opened" and event.at > gone), default=gone)
    known = opened + HEARD
    during = [event for event in events if known <= event.at <= back]
    called = [event for event in _of_calls(during, "called") if event.told["away"]]
    kills = sum(event.what == "fault" for event in during)
    # A probe that dies with its process is made again. The first and the last may come late, and sooner.
    most = max(0.0, back - known) / (0.9 * PARTNER_PROBE) + 2 + kills
    if len(called) > most:
        yield Violation("P1", f"the partner was called {len(called)} times in {back - known:.1f} s, not {most:.0f}")


def _of_calls(events: Iterable[Event], what: str) -> list[Event]:
    return [event for event in events if event.what == what and event.id.startswith("call-")]
