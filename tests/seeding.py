"""Put a queue into a state, as producers and consumers would."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import redis

from mq_django.conf import get_config
from mq_django.core.clock import now_ms
from mq_django.core.flow_graph import FlowGraph
from mq_django.core.ids import message_id_of, new_run_id
from mq_django.core.jsontext import dumps
from mq_django.core.keys import READY
from mq_django.core.messages import ACK, Bury, Delivery, Outcome, SetAside, Undecodable
from mq_django.core.options import History
from mq_django.inspector import message_lists
from mq_django.producers import queues
from mq_django.producers.workflow_steps import StepDelivery, advance, open_home
from mq_django.stores import open_store
from mq_django.stores.base import Settlement, Store
from mq_django.stores.counters import Slots
from mq_django.stores.members import Members
from mq_django.stores.stream_store import StreamStore
from mq_django.stores.workflow_home import Event
from mq_django.transport.connections import open_transport
from mq_django.transport.sessions import reply_or_raise
from tests.waiting import wait_until

CONSUMER = "c-seeded"


def store(queue: str) -> StreamStore:
    return StreamStore(get_config().queue(queue), open_transport("produce"))


def forced_by_id(queue: str) -> dict[str, bool]:
    """Return the ids of the messages that consumers were asked to cancel, each with whether by force."""
    return {message_id: request.force for message_id, request in store(queue).cancel_requests().items()}


def opened(queue: str) -> Store:
    """Return the store of a queue, of any kind, with its groups."""
    found = open_store(get_config().queue(queue), open_transport("consume"))
    found.create_groups()
    return found


def publish(queue: str, name: str, data: Any = None, **options: Any) -> str:
    """Publish at once, also inside the transaction of a test."""
    return str(queues[queue].publish(name, data, on_commit=False, **options))


def publish_many(queue: str, messages: list[tuple[str, Any]]) -> list[str]:
    """Publish at once, also inside the transaction of a test."""
    return list(queues[queue].publish_many(messages, on_commit=False))


def take(queue: str, count: int) -> list[Delivery | Undecodable]:
    """Make messages pending."""
    found = store(queue)
    found.create_groups()
    return found.take(CONSUMER, count=count)


def take_with(queue: str, message_id: str) -> list[Delivery | Undecodable]:
    """Make every ready message pending, this one too: a test that did not get it would go on with another state."""
    deliveries = take(queue, 500)
    assert message_id in [each.message.id for each in deliveries if isinstance(each, Delivery)]
    return deliveries


def settle(queue: str, deliveries: list[Delivery | Undecodable], outcome: Any) -> None:
    assert store(queue).settle(CONSUMER, [Settlement(delivery, outcome) for delivery in deliveries]) == []


def bury(queue: str, name: str = "welcome", data: Any = None, *, error: str = "ValueError: no", **options: Any) -> str:
    """Publish a message, fail it for good, and return its id."""
    message_id = publish(queue, name, data, **options)
    deliveries = take_with(queue, message_id)
    settle(queue, deliveries, Bury(error=error, traceback=f"Traceback ...\n{error}", reason="attempts"))
    return message_id


def handle(
    queue: str,
    name: str = "welcome",
    data: Any = None,
    *,
    outcome: Outcome = ACK,
    keeps_data: bool = True,
    **options: Any,
) -> str:
    """Publish a message, settle it, keep what became of it whatever the settings say, and return its id."""
    message_id = publish(queue, name, data, **options)
    found = store(queue)
    keeping = replace(found.config, history=History(timedelta(days=1), data=keeps_data))
    found = open_store(keeping, open_transport("consume"))
    settlements = [Settlement(delivery, outcome, micros=1500) for delivery in take_with(queue, message_id)]
    assert found.settle(CONSUMER, settlements) == []
    return str(message_id)


def handled_entry(queue: str) -> str:
    """Return the entry of the newest message in the history of a queue."""
    return message_lists.messages(queue, "handled", limit=1).rows[0].ref


def start_run(
    before: Mapping[int, Sequence[int]],
    *,
    queue: str = "default",
    task: str = "shop.tasks.load",
    policy: str = "stop",
    **fields: Any,
) -> str:
    """Start a run of steps by number, each with those that it waits for, and return its id."""
    graph = FlowGraph()
    for number in sorted(before):
        assert graph.add() == number
        graph.wait(number, before[number])
    data = {"args": [], "kwargs": {}}
    records = graph.records([dumps({"queue": queue, "name": f"step:{task}", "data": data}) for _ in before])
    run_id, home = new_run_id(), open_home("0")
    named = {"name": "shop.flows.import_file", "policy": policy, "lasts": 3600_000, "next": len(records)}
    home.create(run_id, {**named, **fields}, records)
    advance(home, run_id, [Event("begin", added=f"1-{len(records)}")])
    # Runs are listed by the millisecond of their start.
    started_ms = now_ms()
    wait_until(lambda: now_ms() > started_ms)
    return run_id


def end_steps(run_id: str, outcome: Outcome, *numbers: int, queue: str = "default") -> None:
    """Settle the messages of started steps, as a consumer does that has run them."""
    wanted = {message_id_of(run_id, number, of_round) for number in numbers for of_round in range(1, 10)}
    take(queue, 500)
    held = store(queue).held_by(CONSUMER, limit=10_000)
    deliveries = [each for each in held if isinstance(each, Delivery) and each.message.id in wanted]
    assert len(deliveries) == len(numbers)
    settle(queue, deliveries, outcome)
    config = get_config().queue(queue)
    StepDelivery(config, open_transport("produce")).deliver([each.message.id for each in deliveries])


def bury_many(queue: str, count: int) -> list[str]:
    """Bury messages in bulk, and return their ids."""
    ids = publish_many(queue, [("welcome", {"n": n}) for n in range(count)])
    while deliveries := take(queue, 500):
        settle(queue, deliveries, Bury(error="ValueError: no", reason="attempts"))
    return ids


def bury_garbage(client: redis.Redis, queue: str, fields: dict[Any, Any]) -> str:
    """Add an entry that is no message, bury it as a consumer does, and return the entry it had."""
    entry = client.xadd(get_config().queue(queue).keys.streams()[READY], fields)
    deliveries = take(queue, 500)
    assert all(isinstance(delivery, Undecodable) for delivery in deliveries)
    settle(queue, deliveries, Bury(error="there is no field data", reason="undecodable"))
    return str(entry.decode())


def add_to_stream(queue: str, message_id: str, *entries: tuple[str, str], attempt: int = 1) -> list[str]:
    """Add entries to the stream of a message, each a kind and its value as it is stored, and return their ids."""
    key = get_config().queue(queue).keys.message_stream(message_id)
    run: tuple[str | int, ...] = ("XADD", key, "*", "run", f"run-{attempt}", "attempt", attempt)
    added = [(*run, "number", number, "total", 0, *entry) for number, entry in enumerate(entries, 1)]
    return [reply_or_raise(reply).decode() for reply in open_transport("produce").pipeline(added)]


def set_aside(queue: str, name: str, data: Any = None) -> str:
    """Publish a message whose name nobody knows, and return its id."""
    message_id = publish(queue, name, data)
    settle(queue, take_with(queue, message_id), SetAside())
    return message_id


def keep(queue: str, supervisor: str = "keeper") -> None:
    """Make a supervisor do the housekeeping of a queue, as its heartbeat says."""
    Members(get_config().queue(queue), open_transport("produce")).beat(
        supervisor, {"host": "ops1", "version": "0.1.0", "housekeeping": True}, {}
    )


def beat(queue: str, supervisor: str = "s1", consumers: int = 1, **more: Any) -> None:
    """Make consumers live, as their supervisor's heartbeat does."""
    about = {"host": "web1", "since_ms": 1_790_000_000_000, "threads": 8, **more}
    described = {f"{supervisor}-c{n}": {**about, "pid": 100 + n} for n in range(consumers)}
    Members(get_config().queue(queue), open_transport("produce")).beat(
        supervisor, {"host": "web1", "pid": 99, "version": "0.1.0"}, described
    )


def tally(queue: str, counts: dict[tuple[str, str], int]) -> None:
    """Add to the counters of this minute, as a consumer does, by (what, name)."""
    command = Slots(get_config().queue(queue).keys).add_command(counts)
    reply_or_raise(open_transport("produce").pipeline([command])[0])


def dead_entry(queue: str) -> str:
    """Return the entry of the newest dead letter."""
    return message_lists.messages(queue, "dead", limit=1).rows[0].ref
