"""docs/scaling.md shows what the model computes from the figures in the repository."""

import re

import pytest

from benchmarks.scaling import drawing, model, page, tables
from benchmarks.scaling.inputs import Inputs
from benchmarks.scaling.model import Keys
from benchmarks.scaling.node_costs import (
    FAIR,
    HOT_KEY,
    ONE_BY_ONE,
    ORDERED,
    ORDERED_AOF,
    PACED,
    PLAIN,
    PLAIN_AOF,
    figure,
)
from mq_django.core.options import MAX_PARTITIONS

TEXT = page.PAGE.read_text(encoding="utf-8")
RENEW = "run `python -m benchmarks.scaling.page`"


@pytest.fixture(scope="module")
def stored():
    return Inputs.load()


def test_the_tables_are_those_of_the_model(stored, monkeypatch):
    # Computed below: it takes seconds.
    simulated = re.search(r"<!-- scaling: waits -->\n\n(.*?)\n\n<!-- /scaling -->", TEXT, re.DOTALL)[1]
    monkeypatch.setattr(page, "TABLES", {**tables.TABLES, "waits": lambda _: simulated})
    assert page.renewed(TEXT, stored) == TEXT, RENEW


@pytest.mark.slow
def test_the_table_of_waits_is_that_of_the_simulation(stored):
    assert f"<!-- scaling: waits -->\n\n{tables.waits(stored)}\n\n<!-- /scaling -->" in TEXT, RENEW


def test_every_table_has_a_place():
    assert sorted(page.places(TEXT)) == sorted([*tables.TABLES, "where"])


def test_the_drawing_is_that_of_the_model(stored):
    assert page.DRAWING.read_text(encoding="utf-8") == drawing.svg(stored), RENEW
    assert "](img/scaling.svg)" in TEXT


def test_the_connections_are_as_the_sentence_on_the_page_says(stored):
    found = re.search(r"has (\d+) connections, (\d+) more for each process, and (\d+) for each queue of a", TEXT)
    tree, process, queue = map(int, found.groups())
    for processes, queues in ((1, 1), (1, 5), (4, 1), (4, 5)):
        assert stored.connections(processes, queues)[0] == tree + processes * (process + queue * queues)


def test_no_plan_has_more_partitions_than_a_queue_may_have():
    assert model.MOST_PARTITIONS == MAX_PARTITIONS


def test_the_gap_of_a_key_is_as_the_page_says(stored):
    gap = 1000 / stored[HOT_KEY]
    assert f"gap of some {gap:.1f} ms" in " ".join(TEXT.split())


def test_what_is_said_in_short_about_one_node_is_what_the_model_says(stored):
    bulk, slow, ordered = (
        model.rate(costs, keys, partitions=1, nodes=1, use=tables.USE).by_nodes
        for costs, keys in tables.planned(stored)
    )
    assert bulk > 10_000
    costs = stored.costs(PLAIN_AOF, bulk=True, slow=True)
    assert model.rate(costs, Keys(), partitions=1, nodes=1, use=tables.USE).by_nodes > 10_000
    assert 9_000 < slow < 10_000
    assert "from 9,000 on" in TEXT
    assert 6_000 < ordered < 7_000
    assert "from 6,000 on" in TEXT


def test_a_publish_costs_more_than_twice_as_much_at_a_low_rate_as_the_page_says(stored):
    for kind in (PLAIN, PLAIN_AOF, ORDERED, ORDERED_AOF, FAIR):
        assert 2 < stored[figure(kind, PACED)] / stored[figure(kind, ONE_BY_ONE)] < 2.5
