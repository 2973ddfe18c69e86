"""The figures of the outbox: rates, ratios, and how long a flush to the disk takes."""

import pytest

from benchmarks import outbox_rows
from benchmarks.trial import Failed


def test_rows_that_are_not_published_in_time_are_a_failure(monkeypatch):
    monkeypatch.setattr(outbox_rows, "PATIENCE", 0.01)
    with pytest.raises(Failed, match="3 of 20 rows"):
        outbox_rows.relay_rate(lambda: 3, 100)


def test_a_transaction_that_publishes_stands_beside_one_that_does_not():
    found = outbox_rows.of_transactions([2.0, 3.0, 4.0, 5.0, 20.0, 50.0])
    assert found["transaction ms: a row alone"] == 2.0
    assert found["by a row alone: and a publish at the commit"] == 1.5
    assert found["by a row alone: and a publish by the outbox"] == 2.0
    assert found["transaction ms: 1,000 messages: and a publish by the outbox"] == 50.0
    assert found["by a row alone: 1,000 messages: and a publish by the outbox"] == 10.0
