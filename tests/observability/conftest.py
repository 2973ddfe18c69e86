"""Handlers of a test alone, and what OpenTelemetry's SDK was given."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from mq_django.signals import message_published

if find_spec("opentelemetry") and find_spec("opentelemetry.sdk"):
    from tests.observability.telemetry import Telemetry, telemetry_of_this_process

OPENTELEMETRY = "mq_django.observability.opentelemetry"
CORRELATION = "mq_django.observability.correlation"


@pytest.fixture
def telemetry() -> Iterator["Telemetry"]:
    """The spans and metrics of a test."""
    found = telemetry_of_this_process()
    found.clear()
    yield found
    message_published.disconnect(dispatch_uid=f"{OPENTELEMETRY}.sent")


@pytest.fixture
def traced(handlers, mq_settings, telemetry) -> Callable[..., Any]:
    """Configure spans around publishing and handling; call it to change settings."""

    def configure(handling: str = "trace_handling", *inner: str, **settings: Any) -> None:
        entries = [f"{OPENTELEMETRY}.trace_publishing", f"{OPENTELEMETRY}.{handling}"]
        mq_settings(MIDDLEWARE=[*entries, *inner], **settings)

    configure()
    return configure
