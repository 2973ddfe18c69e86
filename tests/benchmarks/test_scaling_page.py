"""docs/scaling.md shows what the model computes from the figures in the repository."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from benchmarks import runner
from benchmarks.contenders import HANDLERS
from benchmarks.record import Record
from benchmarks.scaling import drawing, inputs, model, page, tables
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


def test_the_drawing_has_words_and_stays_within_its_box(stored):
    root = ElementTree.fromstring(drawing.svg(stored))
    name = "{http://www.w3.org/2000/svg}"
    assert root.get("aria-labelledby") == "title desc"
    assert "with 48" in root.find(f"{name}desc").text
    _, _, width, height = map(float, root.get("viewBox").split())
    for line in root.iter(f"{name}polyline"):
        points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        assert all(0 <= x <= width and 0 <= y <= height for x, y in points)


def test_the_connections_are_as_the_sentence_on_the_page_says(stored):
    found = re.search(r"A tree has (\d+) connections, (\d+) more for each process, and (\d+) for each queue of a", TEXT)
    tree, process, queue = map(int, found.groups())
    for processes, queues in ((1, 1), (1, 5), (4, 1), (4, 5)):
        assert stored.connections(processes, queues)[0] == tree + processes * (process + queue * queues)


def test_no_plan_has_more_partitions_than_a_queue_may_have():
    assert model.MOST_PARTITIONS == MAX_PARTITIONS


def test_the_figures_of_a_run_are_stored_with_four_digits(tmp_path):
    values = {
        "node: queue: handled us": [1.0, 3.23456, 9.0],
        "connections: 1 processes, 1 queues": [9.0],
        "bulk /s": [1.0],
    }
    where = {"date": "2026-11-20 21:00 UTC", "cores": "2 of some", "load before": "0.1", "Python": "3.11", "Redis": "7"}
    record = Record(
        machine={**where, "system": "some"}, seconds=1.0, contenders=[], values={HANDLERS.name: values}, failures=[]
    )
    Inputs.of(record).save(tmp_path / "inputs.json")
    found = Inputs.load(tmp_path / "inputs.json")
    assert found.where == where
    assert found.figures == {"node: queue: handled us": 3.235, "connections: 1 processes, 1 queues": 9.0}


def test_a_figure_that_is_not_there_is_named(stored):
    with pytest.raises(inputs.NotMeasured, match="node: none"):
        stored["node: none"]


def test_a_place_is_renewed_and_all_around_it_stays(stored):
    text = "a\n<!-- scaling: memory -->\nold\n<!-- /scaling -->\nb\n"
    once = page.renewed(text, stored)
    assert once.startswith("a\n<!-- scaling: memory -->\n\n|  | bytes |")
    assert once.endswith("\n\n<!-- /scaling -->\nb\n")
    assert page.renewed(once, stored) == once


def test_an_empty_place_is_renewed_and_the_next_one_stays(stored):
    text = "<!-- scaling: memory -->\n<!-- /scaling -->\nb\n<!-- scaling: where -->\n<!-- /scaling -->\n"
    once = page.renewed(text, stored)
    assert page.places(once) == ["memory", "where"]
    assert "<!-- /scaling -->\nb\n<!-- scaling: where -->" in once


def test_the_gap_of_a_key_is_as_the_page_says(stored):
    gap = 1000 / stored[HOT_KEY]
    assert f"gap of\nsome {gap:.1f} ms" in TEXT


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


def test_the_steps_that_measure_a_node_are_among_those_of_make_bench():
    assert {"node", "memory of a node", "connections"} <= {step.name for step in runner.STEPS}
