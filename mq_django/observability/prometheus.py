"""Metrics of all queues and topics for Prometheus: `docs/prometheus.md`."""

from collections.abc import Callable, Iterator

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from mq_django.core.logs import get_logger
from mq_django.core.texts import class_name
from mq_django.errors import ConfigurationError, MQError
from mq_django.observability.prometheus_package import Collector, core, exposition
from mq_django.observability.queue_metrics import COUNTERS, GAUGES, HISTOGRAMS, Measurements, buckets_of, measure
from mq_django.transport.sessions import within

__all__ = ["QueueCollector", "metrics_view", "queue_metrics", "queue_registry"]

logger = get_logger(__name__)

#: Seconds for the answers of Redis: less than Prometheus waits for a scrape by default.
TIMEOUT = 8.0
#: The permission of users who may see the metrics, that of the pages in the admin.
PERMISSION = "mq_django.view_queue"
#: Characters of the shortest token.
SHORTEST_TOKEN = 16


class QueueCollector(Collector):
    """Collects the metrics of all queues, groups of topics and topics at each scrape.

    Without an answer of Redis there is only `mq_django_up` with the value 0, and a warning in the log.

        prometheus_client.REGISTRY.register(QueueCollector())

    One program of a project should serve it: each would serve the same values.
    """

    def collect(self) -> Iterator[core.Metric]:
        """Yield the metrics."""
        try:
            with within(TIMEOUT):
                found = measure()
        except MQError as error:
            logger.warning("No metrics of queues: %s", error)
            found = None
        yield core.GaugeMetricFamily("mq_django_up", "Whether Redis answers.", value=float(found is not None))
        if found is not None:
            yield from _metrics(found)

    def describe(self) -> list[core.Metric]:
        """Return nothing, so that registering the collector does not read Redis."""
        return []


def _metrics(found: Measurements) -> Iterator[core.Metric]:
    for kind, metrics in ((core.GaugeMetricFamily, GAUGES), (core.CounterMetricFamily, COUNTERS)):
        for each in metrics:
            metric = kind(each.name, each.help, labels=each.labels)
            for labels, value in each.read(found):
                metric.add_metric(labels, float(value))
            yield metric
    for histogram in HISTOGRAMS:
        buckets = core.HistogramMetricFamily(histogram.name, histogram.help, labels=["queue"])
        for queue in found.queues:
            if queue.totals:
                # There are only buckets: the sum of the values is not counted, and without it there is no count.
                buckets.add_metric([queue.view.name], buckets_of(histogram, queue.totals), None)
        yield buckets


def queue_registry() -> core.CollectorRegistry:
    """Return a registry with the metrics of queues only."""
    registry = core.CollectorRegistry()
    registry.register(QueueCollector())
    return registry


def queue_metrics() -> tuple[str, bytes]:
    """Return the metrics of queues in the text format of Prometheus, after its content type."""
    encode, content_type = exposition.choose_encoder("")
    return content_type, encode(queue_registry())


def metrics_view(
    *,
    token: str | None = None,
    permission: str = PERMISSION,
    registry: core.CollectorRegistry | None = None,
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Return a view that answers with the metrics.

        path("metrics/", metrics_view(token=os.environ.get("METRICS_TOKEN")))

    It is for requests with `Authorization: Bearer <token>`, and for users who are logged in and have the permission.

    Args:
        token: at least 16 characters. None: for users only. The check `mq_django.E011` reports one that is too short,
            and the view then answers nobody with it.
        permission: as for `user.has_perm()`.
        registry: the metrics to serve; by default the metrics of queues. Another one may have `QueueCollector`, too.

    Raises:
        ConfigurationError: the token is not a str.
    """
    if token is not None and not isinstance(token, str):
        raise ConfigurationError(f"The token of a metrics view is a str, not {class_name(type(token))}")
    chosen = registry or queue_registry()
    is_weak = token is not None and len(token) < SHORTEST_TOKEN

    # Prometheus cannot log in.
    @login_not_required
    @never_cache
    @require_GET
    def metrics(request: HttpRequest) -> HttpResponseBase:
        if token is None or is_weak or not _has_token(request, token):
            user = getattr(request, "user", None)
            if user is None or not user.is_authenticated:
                return HttpResponse("Unauthorized.\n", status=401, headers={"WWW-Authenticate": "Bearer"})
            if not user.has_perm(permission):
                return HttpResponse("Forbidden.\n", status=403)
        encode, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
        return HttpResponse(encode(chosen), headers={"Content-Type": content_type})

    # For the system check.
    metrics.mq_django_weak_token = is_weak  # type: ignore[attr-defined]
    return metrics


def _has_token(request: HttpRequest, token: str) -> bool:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and constant_time_compare(given.strip(), token)
