"""The dashboard and the alerts agree with the metrics, the commands and each other. No Prometheus is needed."""

import json
import re

import yaml

from mq_django.management.commands.mq import Command
from tests.observability.monitoring_files import (
    ALERTS_TEST,
    DASHBOARD,
    DOCS,
    documented_names,
    metrics_in,
    panels,
    rules,
    served_names,
)

PAGE = DOCS / "prometheus.md"

VARIABLES = {each["name"]: each for each in DASHBOARD["templating"]["list"]}


def test_a_panel_says_what_it_shows():
    for panel in panels():
        assert panel["title"], panel
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]


def test_a_series_of_a_graph_has_a_name():
    graphs = [panel for panel in panels() if panel["type"] in ("timeseries", "bargauge")]
    assert [panel["title"] for panel in graphs if not all(each["legendFormat"] for each in panel["targets"])] == []


def test_it_can_be_imported_anywhere():
    """Each data source is the variable, and no database id is left."""
    text = json.dumps(DASHBOARD)
    assert set(re.findall(r'"uid": "([^"]*)"', text)) == {"${datasource}", DASHBOARD["uid"]}
    assert DASHBOARD["id"] is None
    assert VARIABLES["datasource"]["query"] == "prometheus"
    # Grafana 10 was released with it; later versions migrate it.
    assert DASHBOARD["schemaVersion"] == 38


def test_queries_use_only_variables_that_there_are():
    used = {name for panel in panels() for each in panel["targets"] for name in re.findall(r"\$(\w+)", each["expr"])}
    assert used == {*VARIABLES, "__rate_interval"} - {"datasource"}


def test_panels_and_alerts_are_about_metrics_that_there_are():
    queries = [(panel["title"], each["expr"]) for panel in panels() for each in panel["targets"]]
    queries += [(rule["alert"], rule["expr"]) for rule in rules()]
    found = [(name, metrics_in(query)) for name, query in queries]
    assert [(name, metrics) for name, metrics in found if not metrics or metrics - served_names()] == []


def test_an_alert_says_what_it_means_and_which_command_shows_more():
    parser = Command().create_parser("manage.py", "mq")
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning"), rule
        assert rule["annotations"]["summary"].endswith("."), rule
        program, *arguments = re.sub(r"{{ \$labels\.\w+ }}", "default", rule["annotations"]["command"]).split()
        assert (program, arguments[0]) == ("manage.py", "mq"), rule
        # An argument that it does not know is an error, which says which.
        parser.parse_args(arguments[1:])


def test_for_each_alert_there_are_two_tests():
    """It fires, and at another time it does not."""
    tested = [
        (each["alertname"], bool(each.get("exp_alerts")))
        for test in yaml.safe_load(ALERTS_TEST.read_text(encoding="utf-8"))["tests"]
        for each in test.get("alert_rule_test", ())
    ]
    assert sorted(tested) == sorted((rule["alert"], fires) for rule in rules() for fires in (False, True))


def test_the_page_lists_every_metric():
    listed = re.findall(r"`(mq_django_\w+)", PAGE.read_text(encoding="utf-8"))
    assert documented_names() - set(listed) == set()


def test_the_page_lists_every_alert():
    listed = set(re.findall(r"`(MQ\w+)`", PAGE.read_text(encoding="utf-8")))
    assert {rule["alert"] for rule in rules()} - listed == set()
