"""Contexts of OpenTelemetry in the headers of messages."""

import re
from collections.abc import Mapping

from mq_django.core.logs import get_logger
from mq_django.core.message_format import HEADER_NAME, RESERVED
from mq_django.errors import MissingDependency
from mq_django.middleware import PublishCall
from mq_django.observability.wrapping import may_add_headers

try:
    from opentelemetry import context as contexts
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.propagators.textmap import Getter, Setter
except ImportError as error:
    raise MissingDependency(
        'mq_django.observability.opentelemetry needs opentelemetry-api: pip install "mq-django[opentelemetry]"'
    ) from error

#: Includes the modules that `opentelemetry` imports from here.
__all__ = ["contexts", "metrics", "trace"]

logger = get_logger(__name__)

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]")


def header_name(field: str) -> str:
    """Return the name that a field of a propagator has in a message: `X-B3-TraceId` is `xb3traceid`."""
    return _NOT_IN_NAMES.sub("", field.lower())


class HeaderSetter(Setter[dict[str, str]]):
    """Writes the fields of a propagator to headers."""

    def set(self, carrier: dict[str, str], key: str, value: str) -> None:
        """Set a header, unless no message can have one of its name."""
        name = header_name(key)
        if HEADER_NAME.fullmatch(name) and name not in RESERVED:
            carrier[name] = value


class HeaderGetter(Getter[Mapping[str, str]]):
    """Reads the fields of a propagator from headers."""

    def get(self, carrier: Mapping[str, str], key: str) -> list[str] | None:
        """Return the values of a field, None without one."""
        found = carrier.get(header_name(key))
        return None if found is None else [found]

    def keys(self, carrier: Mapping[str, str]) -> list[str]:
        """Return the names of all headers."""
        return list(carrier)


_GETTER, _SETTER = HeaderGetter(), HeaderSetter()


def inject(call: PublishCall) -> None:
    """Add the current context to the headers of all messages of a call."""
    if may_add_headers(call):
        propagate.inject(call.headers, setter=_SETTER)


def extracted(headers: Mapping[str, str], base: contexts.Context) -> contexts.Context:
    """Return a context with what came in headers. Invalid values are left out."""
    if not headers:
        return base
    try:
        return propagate.extract(headers, base, _GETTER)
    except Exception:
        # Other programs write headers, and a project may have a propagator of its own.
        logger.warning("The context in the headers of a message cannot be read", exc_info=True)
        return base


def own_context(call: PublishCall) -> trace.SpanContext:
    """Return the context that the caller has put into the headers of the messages, or an invalid one.

    All messages of a call have the same headers of their own.
    """
    headers = call.messages[0].headers
    if headers and not headers.keys().isdisjoint(map(header_name, propagate.get_global_textmap().fields)):
        return trace.get_current_span(extracted(headers, contexts.Context())).get_span_context()
    return trace.INVALID_SPAN_CONTEXT
