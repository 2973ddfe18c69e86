"""The names are those of the conventions."""

import pytest

from mq_django.observability import semantic_conventions as names

pytest.importorskip("opentelemetry.semconv", reason="opentelemetry-semantic-conventions is not installed")

from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import error_attributes

NAMES = {
    name: value
    for name, value in vars(names).items()
    if isinstance(value, str) and value.startswith(("messaging.", "error."))
}


def test_each_name_is_in_the_conventions():
    known = {
        value
        for module in (messaging_attributes, messaging_metrics, error_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    assert len(NAMES) == 13
    assert {name for name, value in NAMES.items() if value not in known} == set()


def test_the_types_of_operations_are_in_the_conventions():
    known = {each.value for each in messaging_attributes.MessagingOperationTypeValues}
    assert {names.SEND, names.PROCESS} <= known


def test_all_other_attributes_have_our_prefix():
    ours = (names.MESSAGE_TYPE, names.HANDLER, names.ATTEMPT, names.RETRY_DELAY, names.BURY_REASON)
    assert [name for name in (*ours, names.RETRY_EVENT, names.BURY_EVENT) if not name.startswith("mq_django.")] == []
