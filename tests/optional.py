"""What is skipped without an optional package."""

from importlib.util import find_spec

import pytest

needs_croniter = pytest.mark.skipif(find_spec("croniter") is None, reason="croniter is not installed")
needs_opentelemetry = pytest.mark.skipif(
    find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None,
    reason="opentelemetry-sdk is not installed",
)
needs_prometheus = pytest.mark.skipif(
    find_spec("prometheus_client") is None, reason="prometheus-client is not installed"
)
needs_sentry = pytest.mark.skipif(find_spec("sentry_sdk") is None, reason="sentry-sdk is not installed")
needs_wagtail = pytest.mark.skipif(find_spec("wagtail") is None, reason="wagtail is not installed")
