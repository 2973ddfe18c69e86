"""The model of many nodes, by hand and beside a simulation of the same."""

from math import inf

import pytest

from benchmarks.scaling import model
from benchmarks.scaling.model import Costs, Keys
from benchmarks.scaling.simulation import simulate

#: 20,000 messages a second with a full core.
COSTS = Costs(server=50.0)


def test_the_share_of_the_hottest_key(subtests):
    for keys, hottest in [
        (Keys(), 0.0),
        (Keys(10), 0.1),
        (Keys(1), 1.0),
        (Keys(3, 1.0), 6 / 11),
        (Keys(4, 0.5), 1 / 2.784457),
    ]:
        with subtests.test(keys=keys):
            assert keys.hottest == pytest.approx(hottest, rel=1e-6)


def test_the_nodes_for_a_rate(subtests):
    for wished, needed in [(1000.0, (1, 1)), (13_999.0, (1, 1)), (14_001.0, (3, 32)), (100_000.0, (8, 64))]:
        with subtests.test(wished=wished):
            assert model.nodes_for(wished, COSTS, Keys(), use=0.7) == needed


def test_there_are_at_least_eight_partitions_a_node_up_to_the_most(subtests):
    for nodes, partitions in [(1, 1), (2, 16), (3, 32), (8, 64), (9, 128), (32, 256), (48, 256)]:
        with subtests.test(nodes=nodes):
            assert model.partitions_for(nodes) == partitions


def test_a_rate_that_no_number_of_nodes_has_room_for_is_refused():
    with pytest.raises(ValueError, match="10,000,000 messages a second"):
        model.nodes_for(10_000_000.0, COSTS, Keys(), use=0.7)


def test_the_simulation_of_a_backlog_is_as_fast_as_the_model_says(subtests):
    for costs, keys in [
        (COSTS, Keys()),
        (COSTS, Keys(1000, 1.0)),
        (Costs(server=50.0, handler=0.01, gap=0.001), Keys(1000, 1.0)),
        (Costs(server=50.0, handler=0.0, gap=0.001), Keys(10)),
    ]:
        with subtests.test(costs=costs):
            count = 40_000
            found = simulate(costs, keys, partitions=64, nodes=3, count=count)
            # The names of the simulation are those of the first naming.
            by_nodes = 3 / 50e-6 / model.spread(model.shares_of_nodes(keys, 64, 3, naming=0))
            by_key = model.keys_rate(costs, keys) if costs.gap is not None else inf
            assert count / found.took == pytest.approx(min(by_nodes, by_key), rel=0.05)
