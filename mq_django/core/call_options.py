"""The timeout and the retry policy of one call of a task, in headers of its message: see `using()` of a task."""

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from mq_django.core.exceptions import class_name, exception_of, path_of, repr_of
from mq_django.core.handler_options import check_retry, parse_timeout
from mq_django.core.jsontext import dumps, loads
from mq_django.core.retries import RetryPolicy
from mq_django.core.times import MAX_DELAY, read_duration
from mq_django.errors import ConfigurationError

#: Milliseconds, and a JSON object of the arguments of RetryPolicy, with seconds and with paths of exceptions.
TIMEOUT_HEADER, RETRY_HEADER = "mqtimeout", "mqretry"
#: The longest text of these headers that is read.
MAX_TEXT = 4096


def call_headers(timeout: timedelta | None, retry: RetryPolicy | None) -> dict[str, str]:
    """Return the headers that carry a timeout and a retry policy, if they are given.

    Raises:
        ConfigurationError: the timeout is longer than any delay, or the policy has more than RetryPolicy itself has.
    """
    check_retry(retry)
    found = {}
    if timeout is not None:
        if timeout > MAX_DELAY:
            raise ConfigurationError(f"The timeout of one call must be up to {MAX_DELAY.days} days, not {timeout}")
        found[TIMEOUT_HEADER] = str(math.ceil(timeout / timedelta(milliseconds=1)))
    if retry is not None:
        if type(retry) is not RetryPolicy:
            raise ConfigurationError(f"The retry policy of one call is a RetryPolicy, not a {class_name(type(retry))}")
        found[RETRY_HEADER] = text = dumps(_arguments_of(retry)).decode()
        if len(text) > MAX_TEXT:
            raise ConfigurationError("The retry policy of one call names too many exceptions in bury_on")
    return found


def options_in(headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the `timeout` and `retry` in the headers of a message, if it has them.

    Exceptions of `bury_on` are those that are imported: nothing is imported for a message.

    Raises:
        ConfigurationError, DecodeError, TypeError: one is not valid. Any program may have written it.
    """
    found: dict[str, Any] = {}
    for name in (TIMEOUT_HEADER, RETRY_HEADER):
        if len(headers.get(name, "")) > MAX_TEXT:
            raise ConfigurationError(f"{name} has more than {MAX_TEXT} characters")
    if (text := headers.get(TIMEOUT_HEADER)) is not None:
        if len(text) > len(str(MAX_DELAY // timedelta(milliseconds=1))) or not (text.isascii() and text.isdigit()):
            raise ConfigurationError(f"{TIMEOUT_HEADER} must be milliseconds, not {repr_of(text)}")
        found["timeout"] = parse_timeout(int(text) / 1000)
    if (text := headers.get(RETRY_HEADER)) is not None:
        arguments = loads(text.encode())
        if not isinstance(arguments, dict) or not isinstance(paths := arguments.get("bury_on", []), list):
            raise ConfigurationError(f"{RETRY_HEADER} must be an object of the arguments of RetryPolicy")
        classes = [exception_of(path) for path in paths if isinstance(path, str)]
        arguments["bury_on"] = [each for each in classes if each is not None and issubclass(each, Exception)]
        found["retry"] = RetryPolicy(**arguments)
    return found


def _arguments_of(retry: RetryPolicy) -> dict[str, Any]:
    """Return what differs from the defaults, in JSON."""
    found: dict[str, Any] = {"max_attempts": retry.max_attempts, "factor": retry.factor, "jitter": retry.jitter}
    found |= {name: read_duration(getattr(retry, name)).total_seconds() for name in ("delay", "max_delay")}
    found["bury_on"] = [path_of(each) for each in retry.bury_on]
    return found
