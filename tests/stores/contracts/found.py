"""Jobs on ready and waiting messages: what they scan, and what they delete."""

from collections.abc import Callable, Iterator
from typing import Any

from mq_django.stores.base import Store
from mq_django.stores.dead_letter_queue import JobStep
from mq_django.stores.found_messages import Cursor, FoundMessages, MessagePlace, Source
from tests.stores.contracts.stage import Stage, message_of

#: The step of a worker that runs the job.
MINE = JobStep("w1", "0.7", 3, 10_000)


def scenes() -> Iterator[Any]:
    """Yield every scene, with a queue and with one in RSMQ's format."""
    opened: list[Callable[[Stage], Store]] = [Stage.queue, Stage.rsmq]
    for open_one in opened:
        for place in ("delayed", "ready"):
            yield lambda stage, open_one=open_one, place=place: delete(stage, open_one(stage), place)


def delete(stage: Stage, store: Store, place: MessagePlace) -> None:
    store.publish([message_of(1), message_of(2, key="k"), message_of(3)])
    store.publish([message_of(4, delay_ms=60_000)])
    store.publish([message_of(5, delay_ms=61_000, **({"unique": "cart:7"} if store.keys.streams() else {}))])
    if place == "ready":
        store.create_groups()  # type: ignore[attr-defined]
        assert store.take("c1", count=1)
    found = FoundMessages(store.config, stage.wire(), place)
    stage.client.hset(store.keys.message_job, mapping={"state": "running", "worker": "w1", "done": 5})
    for number in range(3 if place == "ready" and store.keys.streams() else 1):
        with stage.under("all of a source"):
            read = found.scan(Cursor(number), 10)
        assert read is not None
        source, messages, _ = read
        act(stage, source, [message.member for message in messages])


def act(stage: Stage, source: Source, members: list[bytes]) -> None:
    with stage.under("by a worker that does not run the job"):
        assert source.delete(members, MINE._replace(worker="w2")) == ["STOPPED"]
    with stage.under("in a step of a job, and one that is not there"):
        source.delete([*members, b"5-5"], MINE)
    with stage.under("in a step that finds none"):
        assert source.delete([], MINE) == []
