"""The view of the metrics, as in docs/prometheus.md, with one metric of the processes of runconsumer."""

from django.urls import path
from prometheus_client import Histogram

from mq_django.observability.prometheus import metrics_view, queue_registry

TOKEN = "a token that only tests know"

REGISTRY = queue_registry()
#: Stands for those that consumers serve on ports of their own.
DURATIONS = Histogram(
    "mq_django_handler_duration_seconds", "Of a test.", ["queue", "handler", "outcome"], registry=REGISTRY
)

urlpatterns = [path("metrics/", metrics_view(token=TOKEN, registry=REGISTRY))]
