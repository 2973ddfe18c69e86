"""OpenTelemetry's API, or the error that says how to install it."""

from mq_django.errors import MissingDependency

try:
    from opentelemetry import context as contexts
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.propagators.textmap import Getter, Setter
except ImportError as error:
    raise MissingDependency(
        'mq_django.observability.opentelemetry needs opentelemetry-api: pip install "mq-django[opentelemetry]"'
    ) from error

__all__ = ["Getter", "Setter", "contexts", "metrics", "propagate", "trace"]
