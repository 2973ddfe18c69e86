"""What a project sees that lists the middleware and has not installed OpenTelemetry."""

import sys

import pytest
from django.core.checks import run_checks

from mq_django import queues
from mq_django.errors import MissingDependency
from tests.observability.conftest import OPENTELEMETRY

SAYS = r'needs opentelemetry-api: pip install "mq-django\[opentelemetry\]"'


@pytest.fixture
def without_package(monkeypatch, mq_settings):
    """As if the package were not installed."""
    for name in [name for name in sys.modules if name.startswith(("opentelemetry", "mq_django.observability."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    mq_settings(MIDDLEWARE=[f"{OPENTELEMETRY}.trace_publishing"])


def test_a_publish_says_what_to_install_and_sends_nothing(without_package, redis_client, namespace):
    with pytest.raises(MissingDependency, match=SAYS):
        queues["default"].publish("n", 1)
    assert list(redis_client.scan_iter(match=f"{namespace}:*")) == []


def test_the_checks_say_what_to_install(without_package):
    (error,) = [found for found in run_checks() if found.id == "mq_django.E009"]
    assert 'pip install "mq-django[opentelemetry]"' in error.msg
