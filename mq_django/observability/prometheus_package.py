"""What metrics need of the package prometheus-client; without the package, the error that says how to install it."""

from mq_django.errors import MissingDependency

try:
    import prometheus_client
    from prometheus_client import core, exposition, mmap_dict, multiprocess, values
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingDependency(
        "Metrics for Prometheus need the package prometheus-client: python -m pip install 'mq-django[prometheus]'"
    ) from error

__all__ = ["Collector", "core", "exposition", "mmap_dict", "multiprocess", "prometheus_client", "values"]
