"""The tables of docs/scaling.md: what was measured on one node, and what the model computes from that."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, inf

from benchmarks.scaling import node_memory
from benchmarks.scaling.connections import SHAPES
from benchmarks.scaling.inputs import Inputs
from benchmarks.scaling.model import (
    Costs,
    Keys,
    keys_rate,
    nodes_for,
    partitions_for,
    rate,
    spread_of_nodes,
    spread_of_partitions,
)
from benchmarks.scaling.node_costs import (
    BARE,
    BULK,
    CONSUMER,
    FAIR,
    HANDLED,
    HANDLED_SLOWLY,
    ONE_BY_ONE,
    ORDERED,
    ORDERED_AOF,
    PACED,
    PLAIN,
    PLAIN_AOF,
    RECEIVED,
    SENT,
    TASK,
    figure,
)
from benchmarks.scaling.simulation import simulate
from benchmarks.trial import percentile

#: How full the core of the busiest node may be, as planned. The rest is for peaks, heartbeats and the admin.
USE = 0.7
#: Names of kinds of queues in tables.
NAMES = {
    BARE: "bare redis-py",
    PLAIN: "queue",
    TASK: "queue of tasks",
    ORDERED: "`ORDERED`, 1,000 keys",
    FAIR: "`FAIR`, 1,000 keys",
    PLAIN_AOF: "queue, with an append-only file",
    ORDERED_AOF: "`ORDERED`, with an append-only file",
}
#: What `planned()` returns.
PLANNED = ("in bulk, fast", "one by one, slow", "`ORDERED`, one by one, slow")
RATES = (1_000, 10_000, 100_000, 1_000_000)
NODES = (1, 3, 6, 12, 24, 48)
#: Keys of a queue with order whose model is shown beside the others.
MANY = Keys(100_000, 0.5)


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heading, ["-"] * len(heading), *rows]
    return "\n".join("|-" * len(line) + "|" if set(line) == {"-"} else f"| {' | '.join(line)} |" for line in lines)


def _rounded(value: float) -> str:
    """Return a number with two digits that count."""
    return "no limit" if value == inf else f"{float(f'{value:.2g}'):,.0f}"


def one_node(inputs: Inputs) -> str:
    """Return what a message costs a node."""
    rows = []
    for kind, name in NAMES.items():
        parts = (ONE_BY_ONE, BULK, PACED, HANDLED, HANDLED_SLOWLY)
        micros = [f"{inputs[figure(kind, part)]:.1f}" if inputs.has(figure(kind, part)) else "" for part in parts]
        by_bare = f"{inputs.server_micros(kind) / inputs.server_micros(BARE):.1f}"
        rows.append(
            [name, *micros, by_bare, f"{inputs[figure(kind, RECEIVED)]:,.0f} / {inputs[figure(kind, SENT)]:,.0f}"]
        )
    heading = [
        *("µs of the core", "published one by one", "in bulk", "one by one at a low rate"),
        *("handled by fast handlers", "by slow handlers at a low rate"),
        *("one by one and fast, by bare redis-py", "bytes to / from Redis"),
    ]
    return _table(heading, rows)


def capacity(inputs: Inputs) -> str:
    """Return how many messages a second fill the core of a node."""
    rows = []
    for kind, name in NAMES.items():
        has_bulk, has_slow = inputs.has(figure(kind, BULK)), inputs.has(figure(kind, HANDLED_SLOWLY))
        found = [
            _rounded(1e6 / inputs.server_micros(kind, bulk=bulk, slow=slow)) if there else ""
            for bulk, slow, there in ((True, False, has_bulk), (False, False, True), (False, True, has_slow))
        ]
        rows.append([name, *found])
    heading = ["messages/s of a full core", "in bulk, fast", "one by one, fast", "one by one, slow"]
    return _table(heading, rows)


def memory(inputs: Inputs) -> str:
    """Return the memory of messages and lines."""
    places = {
        "a message that is ready": node_memory.READY,
        "a delayed message": node_memory.DELAYED,
        "a message in a line": node_memory.IN_LINE,
        "a key with a line, beside its messages": node_memory.LINE,
    }
    rows = [[name, _rounded(inputs[place]), f"{inputs[place] / 1000:.2f} GB"] for name, place in places.items()]
    return _table(["", "bytes", "1,000,000 of them"], rows)


def connections(inputs: Inputs) -> str:
    """Return the connections of trees."""
    rows = [
        [str(processes), str(queues), *map(str, inputs.connections(processes, queues))] for processes, queues in SHAPES
    ]
    return _table(["`--processes`", "queues", "to one server", "to the busiest of three nodes"], rows)


def planned(inputs: Inputs) -> tuple[tuple[Costs, Keys], ...]:
    """Return the queues of the plans, with an append-only file: fast ones, slow ones, and slow ones in order."""
    return (
        (inputs.costs(PLAIN_AOF, bulk=True), Keys()),
        (inputs.costs(PLAIN_AOF, slow=True), Keys()),
        (inputs.costs(ORDERED_AOF, slow=True), MANY),
    )


def nodes(inputs: Inputs) -> str:
    """Return what some nodes do."""
    rows = []
    for number in NODES:
        count = partitions_for(number)
        found = [rate(costs, each, partitions=count, nodes=number, use=USE).by_nodes for costs, each in planned(inputs)]
        load = f"{spread_of_nodes(MANY, count, number):.2f}"
        rows.append([str(number), str(count), *map(_rounded, found), load])
    return _table(["nodes", "`PARTITIONS`", *PLANNED, "load of nodes, max/mean"], rows)


def rates(inputs: Inputs) -> str:
    """Return what is needed for some rates."""
    rows = []
    for wished in RATES:
        found = [nodes_for(wished, costs, each, use=USE) for costs, each in planned(inputs)]
        backlog = wished * 60 * inputs[node_memory.READY] / 1e9
        received = wished * inputs[figure(PLAIN, RECEIVED)] * 8 / 1e9
        cores = ceil(wished * inputs[figure(PLAIN, CONSUMER)] / 1e6)
        plans = [f"{needed} / {count}" for needed, count in found]
        rows.append([f"{wished:,}", *plans, str(cores), f"{backlog:,.2f} GB", f"{received:.2g}"])
    heading = [
        *("messages/s", *PLANNED),
        *("cores of consumers, without the handlers' work", "memory of a minute's backlog", "Gbit/s to Redis"),
    ]
    return _table(heading, rows)


def partitions(_: Inputs) -> str:
    """Return how evenly partitions are spread."""
    counts = (8, 16, 64, 256)
    rows = [
        [str(number), *(f"{spread_of_nodes(Keys(), count, number):.2f}" for count in counts)] for number in NODES[1:]
    ]
    return _table(["nodes", *(f"{count} partitions" for count in counts)], rows)


def keys(inputs: Inputs) -> str:
    """Return what keys do to a queue with order."""
    gap = inputs.costs(ORDERED, handler=0.0).gap
    rows = []
    for count in (10, 1_000, 100_000):
        for skew in (0.0, 0.5, 1.0):
            found = Keys(count, skew)
            limits = [keys_rate(Costs(0.0, handler, gap), found) for handler in (0.0, 0.01, 0.05)]
            spreads = [spread_of_partitions(found, 64), *(spread_of_nodes(found, 64, number) for number in (3, 6))]
            rows.append(
                [
                    f"{count:,}",
                    f"{skew:g}",
                    f"{found.hottest * 100:.2g} %",
                    *map(_rounded, limits),
                    *(f"{each:.2f}" for each in spreads),
                ]
            )
    heading = [
        *("keys", "skew", "hottest key", "0 ms /s", "10 ms /s", "50 ms /s"),
        *("64 partitions, max/mean", "3 nodes", "6 nodes"),
    ]
    return _table(heading, rows)


def waits(inputs: Inputs) -> str:
    """Return how long the messages of a key wait whose line is nearly always busy."""
    costs, one = inputs.costs(ORDERED, handler=0.05), Keys(1)
    rows = []
    for use in (0.5, 0.7, 0.8, 0.9):
        offered = use * keys_rate(costs, one)
        found = simulate(costs, one, partitions=1, nodes=1, count=400_000, offered=offered)
        waited = [percentile(found.waits, percent) * 1000 for percent in (50, 99)]
        rows.append([f"{use * 100:.0f} %", f"{offered:.0f}", *(f"{ms:,.0f} ms" for ms in waited)])
    return _table(["the key is busy", "its messages/s", "wait, p50", "wait, p99"], rows)


#: The tables by the names of their places in the page.
TABLES: Mapping[str, Callable[[Inputs], str]] = {
    "one node": one_node,
    "capacity": capacity,
    "memory": memory,
    "connections": connections,
    "nodes": nodes,
    "rates": rates,
    "partitions": partitions,
    "keys": keys,
    "waits": waits,
}
