"""Measurers are optional, and their errors stay their own."""

from mq_django.consumers.measuring import Measurers
from mq_django.consumers.supervisor.promoter import measured_promotions
from mq_django.consumers.worker.measured_store import measured


def test_without_a_measurer_a_store_is_itself(store):
    stores = {0: store}
    assert measured(store) is store
    assert measured_promotions(stores) is stores


def test_an_error_of_a_measurer_is_logged_once(monkeypatch, caplog):
    monkeypatch.setattr(Measurers, "_has_failed", False)
    for _ in range(3):
        Measurers.report(lambda number: 1 / number, 0)
    assert caplog.text.count("Metrics are incomplete from now on") == 1
