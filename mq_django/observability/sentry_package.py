"""What the middleware needs of the package sentry-sdk; without the package, the error that says how to install it."""

from mq_django.errors import MissingDependency

try:
    import sentry_sdk
    from sentry_sdk.crons import capture_checkin
    from sentry_sdk.scope import add_global_event_processor
    from sentry_sdk.types import Event, Hint
    from sentry_sdk.utils import capture_internal_exceptions, event_from_exception
except ImportError as error:
    raise MissingDependency(
        "The middleware for Sentry needs the package sentry-sdk: python -m pip install 'mq-django[sentry]'"
    ) from error

__all__ = [
    "Event",
    "Hint",
    "add_global_event_processor",
    "capture_checkin",
    "capture_internal_exceptions",
    "event_from_exception",
    "sentry_sdk",
]
