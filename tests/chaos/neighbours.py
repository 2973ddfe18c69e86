"""15: other queues of the same consumers, whose keys hold nonsense wherever something reads them."""

from contextlib import suppress

import redis

from mq_django.conf import get_config
from tests.chaos.settings import RSMQ_NEIGHBOUR, STREAM_NEIGHBOUR
from tests.chaos.stage import Stage
from tests.hostile_keys import OF_RSMQ, OF_STREAMS
from tests.waiting import wait_until


def play(stage: Stage, rounds: int) -> None:
    """Put nonsense into the neighbours' keys, some of it into the hands of a consumer, and kill that one."""
    with stage.client as client:
        for _ in range(rounds):
            # No processes are hit: it must cost nothing.
            name = stage.strike("nonsense", lambda: _spoil(stage, client))
            stage.pause(0.5, 1.0)
            stage.kill(_hand_out(stage, client))
            stage.pause(1.0, 2.0)
            stage.heal(name)


def _spoil(stage: Stage, client: redis.Redis) -> None:
    for queue, places in ((STREAM_NEIGHBOUR, OF_STREAMS), (RSMQ_NEIGHBOUR, OF_RSMQ)):
        keys = get_config().queue(queue).keys
        for name in stage.rng.sample(sorted(places), len(places)):
            places[name](client, keys)


def _hand_out(stage: Stage, client: redis.Redis) -> int:
    """Let a living consumer hold nonsense of the neighbour, and return its process id."""
    keys = get_config().queue(STREAM_NEIGHBOUR).keys

    # Its group may be gone with what was put into the place of the stream.
    with suppress(redis.ResponseError):
        client.xgroup_create(keys.ready, keys.group, "0", mkstream=True)
    living = wait_until(stage.living, timeout=60, message="a consumer lives")
    name = stage.rng.choice(sorted(living))
    pipeline = client.pipeline(transaction=True)
    for place in ("infinite data", "deep data", "infinite data over lines", "an id that is no text"):
        OF_STREAMS[place](pipeline, keys)
    pipeline.xreadgroup(keys.group, name, {keys.ready: ">"}, count=10)
    pipeline.execute()
    return living[name]
