"""OpenTelemetry's SDK in this process, which keeps spans and metrics in memory."""

from functools import cache
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

DELTA = AggregationTemporality.DELTA


class Telemetry:
    """What the SDK was given since clear()."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader({Counter: DELTA, Histogram: DELTA})
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        trace.set_tracer_provider(provider)
        metrics.set_meter_provider(MeterProvider([self._reader]))

    def clear(self) -> None:
        self._exporter.clear()
        self._reader.get_metrics_data()

    def spans(self, start: str = "") -> list[ReadableSpan]:
        """Return the spans that have ended and whose name starts so, in the order of their start."""
        found = self._exporter.get_finished_spans()
        return sorted((span for span in found if span.name.startswith(start)), key=lambda span: span.start_time or 0)

    def span(self, start: str) -> ReadableSpan:
        (found,) = self.spans(start)
        return found

    def points(self) -> dict[str, list[Any]]:
        """Return the points of each metric since the last time."""
        found = self._reader.get_metrics_data()
        return {
            metric.name: list(metric.data.data_points)
            for resource in (found.resource_metrics if found else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@cache
def telemetry_of_this_process() -> Telemetry:
    """Return the telemetry of this process: the SDK lets its providers be set once."""
    return Telemetry()
