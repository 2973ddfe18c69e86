"""Translate errors of redis-py to those of mq_django, with advice for connection errors."""

import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import redis
from redis import exceptions

from mq_django.errors import (
    ConnectionLost,
    ConnectionRejected,
    NotPermitted,
    ReadOnly,
    RedisOutOfMemory,
    StoreError,
    WrongKeyType,
)

P = ParamSpec("P")
T = TypeVar("T")

SETTING = 'MQ_DJANGO["CONNECTION"]'

#: Codes of error replies. Searched anywhere in the text, because Redis 6.2 wraps errors of commands in scripts.
_CODES: tuple[tuple[str, type[StoreError]], ...] = (
    ("WRONGTYPE", WrongKeyType),
    ("OOM", RedisOutOfMemory),
    ("READONLY", ReadOnly),
    ("MISCONF", ReadOnly),
    ("NOREPLICAS", ReadOnly),
    ("LOADING", ConnectionLost),
    ("MASTERDOWN", ConnectionLost),
    ("CLUSTERDOWN", ConnectionLost),
    ("NOPERM", NotPermitted),
)

#: Errors of a broken connection that has TLS. All other SSL errors are errors of TLS itself.
_BROKEN = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


def translate(error: Exception) -> StoreError:
    """Return the error of mq_django for an error of redis-py or of a socket."""
    if isinstance(error, exceptions.ReadOnlyError):
        return ReadOnly(str(error))
    if isinstance(error, exceptions.OutOfMemoryError):
        return RedisOutOfMemory(str(error))
    if isinstance(error, exceptions.NoPermissionError):
        return NotPermitted(f"{error} (docs/settings.md lists the rights that a Redis user needs)")
    if isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError | OSError):
        return ConnectionLost(f"Cannot reach Redis, or it did not reply in time: {error}")
    for code, kind in _CODES:
        if code in str(error):
            return kind(str(error))
    if "last possible ID" in str(error) or "stream top item" in str(error):
        return StoreError(
            "A stream has an entry with the largest possible id, so no entry can be added. "
            f"Save its entries, and delete its key. ({error})"
        )
    return StoreError(str(error))


def readable(read: Callable[P, T]) -> Callable[P, T | StoreError]:
    """Decorate a function that parses one of several replies: it returns its error instead of raising it.

    One queue with invalid keys then does not prevent showing the others.
    """

    @wraps(read)
    def read_or_error(*args: P.args, **kwargs: P.kwargs) -> T | StoreError:
        try:
            return read(*args, **kwargs)
        except StoreError as error:
            return error
        except Exception as error:  # noqa: BLE001 - any program may have written the data
            return StoreError(f"Invalid data in Redis: {type(error).__name__}: {str(error)[:200]}")

    return read_or_error


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of redis-py as those of mq_django."""
    try:
        yield
    except (exceptions.RedisError, OSError) as error:
        raise translate(error) from error


def translate_connecting(
    error: Exception, pool: redis.ConnectionPool, *, during: BaseException | None = None
) -> StoreError:
    """Return the error of mq_django for a failed connect: ConnectionRejected unless it may be temporary.

    `during` is the exception that was being handled when the pool connected: it is not part of the cause.
    """
    at, reason, cause = address(pool), _sentence(error), _cause(error, during)
    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError):
        return ConnectionRejected(
            f"Redis at {at} refuses the log-in: {reason} Check the user name and the password in {SETTING}."
        )
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, _BROKEN):
        return _tls_failed(at, cause)
    if isinstance(cause, FileNotFoundError | PermissionError) and _uses_tls(pool):
        return ConnectionRejected(f"A file for TLS that {SETTING} names cannot be read: {cause.strerror}.")
    if isinstance(error, exceptions.InvalidResponse):
        return ConnectionRejected(f"The server at {at} is not Redis: {reason} Check the address in {SETTING}.")
    if isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError | OSError):
        return ConnectionLost(f"Cannot reach Redis at {at}: {_reason(error, cause)}{_hint(error, cause, pool)}")
    translation = translate(error)
    if type(translation) is StoreError:
        return ConnectionRejected(f"Redis at {at} refuses the connection: {reason} Check {SETTING}.")
    return translation


def address(pool: redis.ConnectionPool) -> str:
    """Return the address of a pool for messages, without user and password."""
    options = pool.connection_kwargs
    if "service_name" in vars(pool):
        return f"the master {vars(pool)['service_name']!r} of the Sentinels"
    if "directory" in options:
        return f"{options['directory']} (embedded)"
    return str(options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}")


def _tls_failed(at: str, cause: ssl.SSLError) -> ConnectionRejected:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ConnectionRejected(
            f"The certificate of Redis at {at} cannot be verified: {cause.verify_message.strip('.')}. "
            f"Check the host in {SETTING}, and name the CA there: rediss://...?ssl_ca_certs=/path/ca.pem."
        )
    reason = (cause.reason or str(cause)).replace("_", " ").lower()
    return ConnectionRejected(
        f"TLS with Redis at {at} fails: {reason}. Check {SETTING}: a server without TLS needs redis://, not rediss://."
    )


def _reason(error: Exception, cause: BaseException) -> str:
    if isinstance(cause, TimeoutError) or isinstance(error, exceptions.TimeoutError):
        return "it did not answer in time."
    if _hung_up(error, cause):
        return "it closed the connection."
    if isinstance(cause, OSError) and cause.strerror:
        return f"{cause.strerror}."
    return _sentence(error)


def _hint(error: Exception, cause: BaseException, pool: redis.ConnectionPool) -> str:
    """Return a likely reason: a server with TLS closes plain connections, one without TLS waits."""
    if _uses_tls(pool):
        return " If it has no TLS, write redis:// instead of rediss://." if "handshake" in str(cause) else ""
    if _hung_up(error, cause) and "path" not in pool.connection_kwargs:
        return " If it expects TLS, write rediss:// instead of redis://."
    return ""


def _hung_up(error: Exception, cause: BaseException) -> bool:
    return isinstance(cause, ConnectionResetError | BrokenPipeError) or "closed by server" in str(error)


def _uses_tls(pool: redis.ConnectionPool) -> bool:
    return issubclass(pool.connection_class, redis.SSLConnection)


def _cause(error: BaseException, during: BaseException | None) -> BaseException:
    """Return the first error, which redis-py chains to its own."""
    while (earlier := error.__cause__ or error.__context__) and earlier is not during:
        error = earlier
    return error


def _sentence(error: Exception) -> str:
    return re.sub(r"[.\s]*$", ".", str(error), count=1)
