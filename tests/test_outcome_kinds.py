"""Each table by kind of outcome has all kinds, or says which it cannot get."""

from importlib import import_module
from importlib.util import find_spec
from typing import get_args

from mq_django.core.messages import KINDS, Ack, Cancel, HandBack, Outcome, Park, SetAside, StepDrop, StepEnd
from mq_django.stores import counters, results, rsmq_store, settling

#: Of tables whose module says what becomes of the other kinds.
TABLES = {
    # A message that goes back, waits for a handler or is held has had no attempt.
    # What has not ended here is counted when it ends; what is cancelled is counted by nobody.
    "counters": (counters.ENDS, {HandBack, SetAside, Park, Cancel, StepDrop}),
    "states of results": (results._STATUS, {HandBack, SetAside, Park}),
    "streams": (settling._STREAM, set()),
    # Each group of a topic handles a message for itself: nobody cancels it, and it is no step of a workflow.
    "logs": (settling._LOG, {StepEnd, StepDrop, Cancel}),
    "RSMQ": (rsmq_store._RSMQ, {StepEnd, StepDrop, Park, Cancel}),
}


if find_spec("prometheus_client"):
    TABLES["metrics"] = (import_module("mq_django.observability.process_metrics").OUTCOMES, set())


def test_all_kinds_are_known():
    assert set(get_args(Outcome)) | {StepEnd, StepDrop} == set(KINDS)
    assert {kind for kind in KINDS if issubclass(kind, Ack)} == {Ack, StepEnd, StepDrop}


def test_each_table_has_all_kinds():
    wrong = {
        name: set(table) ^ (set(KINDS) - excepted)
        for name, (table, excepted) in TABLES.items()
        if set(table) != set(KINDS) - excepted
    }
    assert wrong == {}
