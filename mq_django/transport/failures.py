"""Translate errors of redis-py to errors of mq_django, with advice for connection errors."""

import re
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import redis
from redis import exceptions
from redis.sentinel import SentinelConnectionPool

from mq_django import errors
from mq_django.core.texts import class_name
from mq_django.transport.scripts import Command
from mq_django.transport.sentinel_urls import SENTINEL_PORT, NoMaster, sentinel_address

P = ParamSpec("P")
T = TypeVar("T")

SETTING = 'MQ_DJANGO["CONNECTION"]'

#: The text that Redis and Valkey add to the error of a command that a script ran.
_BEHIND_SCRIPT_ERRORS = re.compile(r" script: (?:[0-9a-f]{40}, )?on @?user_script:\d+\.?$")
_CODE = re.compile(r"[A-Z]+(?= |$)")

#: Meanings of the code with which an error reply begins.
_CODES: dict[str, type[errors.StoreError]] = {
    "ASK": errors.WrongNode,
    "BUSY": errors.ServerBusy,
    "LOADING": errors.ConnectionLost,
    "MASTERDOWN": errors.ConnectionLost,
    "MISCONF": errors.ReadOnly,
    "MOVED": errors.WrongNode,
    "NOPERM": errors.NotPermitted,
    "NOREPLICAS": errors.ReadOnly,
    "OOM": errors.RedisOutOfMemory,
    "READONLY": errors.ReadOnly,
    "WRONGTYPE": errors.WrongKeyType,
}
#: Errors for which redis-py has classes, and from which it removes the code.
_KINDS: tuple[tuple[type[Exception], type[errors.StoreError]], ...] = (
    (exceptions.ReadOnlyError, errors.ReadOnly),
    (exceptions.OutOfMemoryError, errors.RedisOutOfMemory),
    (exceptions.NoPermissionError, errors.NotPermitted),
    (exceptions.AskError, errors.WrongNode),
    (exceptions.ConnectionError, errors.ConnectionLost),
    (exceptions.TimeoutError, errors.ConnectionLost),
    (OSError, errors.ConnectionLost),
)
#: Replies of a node of a cluster while slots move, or have no master.
_NOT_EXECUTED = (exceptions.ClusterDownError, exceptions.TryAgainError)
#: How a Sentinel refuses the first commands that it gets from us. Its users may do no less than a Redis's.
_OF_SENTINEL = re.compile(r"unknown command ['`](?:EVAL|EVALSHA|SELECT)\b", re.IGNORECASE)
SENTINEL_ADVICE = (
    f"If Sentinels name the master, write redis+sentinel://HOST:{SENTINEL_PORT}/NAME_OF_THE_MASTER/0 in {SETTING}."
)
#: How Redis and Valkey refuse, without a code, what a user may not do in a script.
_NOT_PERMITTED = ("The user executing the script can't", "ACL failure in script: ")
#: What is said with the server's own words.
_ADVICE: dict[type[errors.StoreError], str] = {
    errors.ConnectionLost: "Cannot reach Redis, or it did not reply in time: {}",
    errors.NotPermitted: "{} (docs/settings.md lists the rights that a Redis user needs)",
    errors.ReadOnly: "Redis accepts no writes. If it is a replica, name the master in CONNECTION: {}",
    errors.RedisOutOfMemory: "Redis is at its maxmemory. Raise it, or delete messages with manage.py mq purge: {}",
    errors.WrongNode: "Redis is a node of a Redis Cluster, and another node has the key. Write redis+cluster:// "
    "instead of redis:// in CONNECTION, or rediss+cluster:// instead of rediss://: {}",
}

#: Errors of a broken connection that has TLS. All other SSL errors are errors of TLS itself.
_BROKEN = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


def translate(error: Exception) -> errors.StoreError:
    """Return the error of mq_django for an error of redis-py or of a socket; one of mq_django as it is."""
    if isinstance(error, errors.StoreError):
        return error
    text, code = error_text(error), error_code(error)
    if _OF_SENTINEL.search(text):
        return errors.ConnectionRejected(f"The server runs no scripts, as a Sentinel does. {SENTINEL_ADVICE} ({text})")
    kind = next((kind for known, kind in _KINDS if isinstance(error, known)), None) or _CODES.get(code)
    if isinstance(error, _NOT_EXECUTED) or code in ("TRYAGAIN", "CLUSTERDOWN"):
        return not_executed(error)
    if text.startswith(_NOT_PERMITTED):
        kind = errors.NotPermitted
    if notes := getattr(error, "__notes__", ()):
        text = f"{text} ({'; '.join(notes)})"
    if kind is not None:
        return kind(_ADVICE.get(kind, "{}").format(text))
    if "last possible ID" in text or "stream top item" in text:
        return errors.StoreError(
            "A stream has an entry with the largest possible id, so no entry can be added. "
            f"Save its entries, and delete its key. ({text})"
        )
    return errors.StoreError(text)


def name_keys(commands: Sequence[Command], replies: Sequence[Any]) -> None:
    """Note with which command and key Redis refuses the type of a key, which its reply does not say; scripts say it."""
    for command, reply in zip(commands, replies, strict=True):
        if isinstance(reply, exceptions.ResponseError) and command[0] != "EVALSHA" and error_code(reply) == "WRONGTYPE":
            key = next((each for each in command[1:] if isinstance(each, str) and ":" in each), "")
            reply.add_note(f"{command[0]!s} {key}".rstrip())


def not_executed(error: Exception) -> errors.ConnectionLost:
    """Return the error of mq_django for what a node of a Redis Cluster could not execute now."""
    if isinstance(error, exceptions.ClusterDownError) or error_code(error) == "CLUSTERDOWN":
        why = "No node of the Redis Cluster serves the hash slot of the keys now"
    elif isinstance(error, exceptions.MovedError):
        why = "The nodes of the Redis Cluster do not agree yet which of them has the keys"
    else:
        why = "The Redis Cluster is moving the keys to another node, and has moved some of them"
    failure = errors.ConnectionLost(
        f"{why}. The command was not executed; it can be sent again later: {error_text(error)}"
    )
    failure.was_sent, failure.__cause__ = False, error
    return failure


def concerns_one_slot(error: BaseException) -> bool:
    """Return whether an error is about a slot of a cluster that is being moved. Other slots of the node work."""
    return isinstance(error.__cause__, exceptions.AskError | exceptions.TryAgainError)


def error_text(error: Exception) -> str:
    """Return what an error reply says, without what Redis adds when a script's command failed."""
    return _BEHIND_SCRIPT_ERRORS.sub("", str(error))


def error_code(error: Exception) -> str:
    """Return the code of an error reply, such as "WRONGTYPE"; "" when it has none, or redis-py a class for it."""
    found = _CODE.match(error_text(error))
    return found[0] if found else ""


def readable(read: Callable[P, T]) -> Callable[P, T | errors.StoreError]:
    """Decorate a function that parses one of several replies: it returns its error instead of raising it.

    One queue with invalid keys then does not prevent showing the others.
    """

    @wraps(read)
    def read_or_error(*args: P.args, **kwargs: P.kwargs) -> T | errors.StoreError:
        try:
            return read(*args, **kwargs)
        except errors.StoreError as error:
            return error
        except Exception as error:  # noqa: BLE001 - any program may have written the data
            return errors.StoreError(f"Invalid data in Redis: {class_name(type(error))}: {str(error)[:200]}")

    return read_or_error


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of redis-py as errors of mq_django."""
    try:
        yield
    except (exceptions.RedisError, OSError) as error:
        raise translate(error) from error


def translate_connecting(
    error: Exception, pool: redis.ConnectionPool, *, during: BaseException | None = None
) -> errors.StoreError:
    """Return the error of mq_django for a failed connect: ConnectionRejected unless it may be temporary.

    `during` is the exception that was being handled when the pool connected: it is not part of the cause.
    """
    at, reason, cause = address(pool), _sentence(error), _cause(error, during)
    if isinstance(error, NoMaster):
        if error.may_pass:
            return errors.ConnectionLost(f"Cannot reach Redis at {at}: {reason}")
        return errors.ConnectionRejected(f"There is no Redis at {at}: {reason} Check {SETTING}.")
    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError):
        return errors.ConnectionRejected(
            f"Redis at {at} refuses the log-in: {reason} Check the user name and the password in {SETTING}."
        )
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, _BROKEN):
        return _tls_failed(at, cause, _plus(pool))
    if isinstance(cause, FileNotFoundError | PermissionError) and _uses_tls(pool):
        return errors.ConnectionRejected(f"A file for TLS that {SETTING} names cannot be read: {cause.strerror}.")
    if isinstance(error, exceptions.InvalidResponse):
        return errors.ConnectionRejected(f"The server at {at} is not Redis: {reason} Check the address in {SETTING}.")
    if isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError | OSError):
        return errors.ConnectionLost(f"Cannot reach Redis at {at}: {_reason(error, cause)}{_hint(error, cause, pool)}")
    translation = translate(error)
    if _OF_SENTINEL.search(reason):
        return errors.ConnectionRejected(
            f"The server at {at} has no databases, as a Sentinel. {SENTINEL_ADVICE} ({reason})"
        )
    if type(translation) is errors.StoreError:
        return errors.ConnectionRejected(f"Redis at {at} refuses the connection: {reason} Check {SETTING}.")
    return translation


def address(pool: redis.ConnectionPool) -> str:
    """Return the address of a pool for messages, without user and password."""
    options = pool.connection_kwargs
    if isinstance(pool, SentinelConnectionPool):
        sentinels = (each.connection_pool.connection_kwargs for each in pool.sentinel_manager.sentinels)
        return (
            f"the master {pool.service_name!r} of the Sentinels {', '.join(sorted(map(sentinel_address, sentinels)))}"
        )
    if "directory" in options:
        return f"{options['directory']} (embedded)"
    return str(options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}")


def _plus(pool: redis.ConnectionPool) -> str:
    """Return what a URL in CONNECTION has behind the first word of its scheme."""
    return str(vars(pool).get("mq_django_scheme", ""))


def _tls_failed(at: str, cause: ssl.SSLError, plus: str) -> errors.ConnectionRejected:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return errors.ConnectionRejected(
            f"The certificate of Redis at {at} cannot be verified: {cause.verify_message.strip('.')}. "
            f"Check the host in {SETTING}, and name the CA there: rediss{plus}://...?ssl_ca_certs=/path/ca.pem."
        )
    reason = (cause.reason or str(cause)).replace("_", " ").lower()
    return errors.ConnectionRejected(
        f"TLS with Redis at {at} fails: {reason}. Check {SETTING}: a server without TLS needs redis{plus}://, not "
        f"rediss{plus}://."
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
    plus = _plus(pool)
    if _uses_tls(pool):
        return (
            f" If it has no TLS, write redis{plus}:// instead of rediss{plus}://." if "handshake" in str(cause) else ""
        )
    if _hung_up(error, cause) and "path" not in pool.connection_kwargs:
        return f" If it expects TLS, write rediss{plus}:// instead of redis{plus}://."
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
