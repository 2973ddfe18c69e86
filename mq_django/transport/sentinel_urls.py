"""URLs that name a master by its Sentinels: redis+sentinel://user:password@s1:26379,s2:26379/mymaster/0.

User and password are the master's. The Sentinels' are options: sentinel_username, sentinel_password.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode

from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)

# Options of redis-py for asking Sentinels, or nodes of a cluster, which server is the master.

#: Short timeouts, so that a silent Sentinel does not delay the next.
TOPOLOGY_OPTIONS: dict[str, Any] = {
    "socket_connect_timeout": 0.5,
    "socket_timeout": 1.0,
    "retry": Retry(NoBackoff(), 0),
    "protocol": 2,
}

#: The port of a Sentinel by default.
SENTINEL_PORT = 26379

#: Options of redis-py's pool for Sentinels that would change which server is found.
_NOT_IN_URLS = frozenset({"is_master", "check_connection", "connection_pool", "service_name", "sentinel_manager"})
#: Options for the log-in of the Sentinels.
_LOGIN = frozenset({"sentinel_username", "sentinel_password"})
#: Options of a master that its Sentinels have, too, beside the options of TLS.
_SHARED = ("socket_keepalive", "socket_keepalive_options", "socket_type")
#: One Sentinel: a name, an address of version 4, or one of version 6 in brackets; and a port.
_SENTINEL = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([^\s\[\]:@,/]+))(?::(\d{1,5}))?")
#: Names that a Sentinel accepts.
_MASTER = re.compile(r"[\w.-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class SentinelURL:
    """What a URL says about a master and its Sentinels."""

    master: str
    #: Hosts and ports.
    sentinels: Sequence[tuple[str, int]]
    #: The log-in of the Sentinels, as options of redis-py.
    login: Mapping[str, str]
    #: All else, as a URL of one server.
    server_url: str

    @classmethod
    def read(cls, url: str) -> "SentinelURL":
        """Return what a URL says.

        Raises:
            ValueError: it cannot be used. Does not quote it, because it may contain a password.
        """
        scheme, _, rest = url.partition("+sentinel://")
        rest, _, query = rest.partition("#")[0].partition("?")
        at, _, path = rest.partition("/")
        login, sign, hosts = at.rpartition("@")
        master, _, database = path.partition("/")
        sentinels = tuple(_sentinel(part) for part in hosts.split(","))
        if not _MASTER.fullmatch(unquote(master)):
            raise ValueError(
                "it must name a master behind the Sentinels, such as redis+sentinel://HOST:26379/mymaster/0."
            )
        options = parse_qsl(query)
        names = {name for name, _ in options}
        if wrong := sorted(names & _NOT_IN_URLS | {name for name in names if name.startswith("sentinel_")} - _LOGIN):
            raise ValueError(f"{wrong[0]!r} is not an option of such a URL.")
        others = urlencode([(name, value) for name, value in options if name not in _LOGIN])
        return cls(
            master=unquote(master),
            sentinels=sentinels,
            login={name.removeprefix("sentinel_"): value for name, value in options if name in _LOGIN},
            server_url=f"{scheme}://{login}{sign}master/{database}{'?' if others else ''}{others}",
        )


def _sentinel(part: str) -> tuple[str, int]:
    found = _SENTINEL.fullmatch(part.strip())
    port = int(found[3] or SENTINEL_PORT) if found else 0
    if found is None or not 1 <= port <= 65535:
        raise ValueError(
            "it must have the Sentinels as HOST or HOST:PORT, with commas between them, IPv6 in brackets, and ports "
            "from 1 to 65535. In a user name or password, write /, ?, #, @, : and % percent-encoded."
        )
    return found[1] or unquote(found[2]), port


def master_pool(found: SentinelURL, where: Mapping[str, Any], ours: Mapping[str, Any]) -> SentinelConnectionPool:
    """Return a pool to the master that Sentinels name, which does not connect yet.

    Args:
        found: the URL.
        where: options of redis-py for the log-in, the database and TLS of the master.
        ours: our options of redis-py.
    """
    uses_tls = found.server_url.startswith("rediss:")
    tls = {name: value for name, value in where.items() if name.startswith("ssl")}
    shared = {name: value for name, value in where.items() if name in _SHARED}
    asking = {**tls, **shared, **TOPOLOGY_OPTIONS, **found.login, "ssl": uses_tls}
    pool = SentinelConnectionPool(  # type: ignore[no-untyped-call]
        found.master,
        MasterFinder(list(found.sentinels), sentinel_kwargs=asking),  # type: ignore[no-untyped-call]
        **{name: value for name, value in where.items() if name not in ("port", "connection_class")},
        **ours,
        connection_class=SentinelManagedSSLConnection if uses_tls else SentinelManagedConnection,
    )
    # As in the pools of django-redis. Connections replace it.
    pool.connection_kwargs["host"] = found.master
    # For advice: an alias writes TLS otherwise.
    vars(pool)["mq_django_scheme"] = "+sentinel"
    return pool


#: Name of a master, and its Sentinels -> the address that was found last in this process.
_found: dict[tuple[str, frozenset[str]], tuple[str, int]] = {}


class NoMaster(MasterNotFoundError):
    """No Sentinel names a master that can be used."""

    def __init__(self, text: str, *, may_pass: bool) -> None:
        #: It may be temporary: a Sentinel does not answer, or sees that the master is down.
        self.may_pass = may_pass
        super().__init__(text)


class MasterFinder(Sentinel):
    """Asks Sentinels one after another. One that answers with an error does not prevent asking the next.

    Its errors say what each Sentinel answered. Those of redis-py quote the options of connections.
    """

    @classmethod
    def of(cls, manager: Sentinel) -> "MasterFinder":
        """Return one for the Sentinels of another manager."""
        found = cls.__new__(cls)
        vars(found).update(vars(manager))
        return found

    def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return host and port of a master. Raises NoMaster."""
        said, may_pass = [], False
        for sentinel in list(self.sentinels):
            try:
                masters: Any = sentinel.sentinel_masters()
                state = masters.get(service_name)
            except (exceptions.RedisError, OSError) as error:
                reason, is_transient = _reason(error)
            else:
                if state and self.check_master_state(state, service_name):  # type: ignore[no-untyped-call]
                    self.sentinels.sort(key=lambda each: each is not sentinel)
                    address = (getattr(self, "_force_master_ip", None) or state["ip"], state["port"])
                    _found[self._key(service_name)] = address
                    return address
                reason, is_transient = ("sees that it is down", True) if state else ("does not know this name", False)
            said.append(f"{sentinel_address(sentinel.connection_pool.connection_kwargs)} {reason}")
            may_pass |= is_transient
        raise NoMaster(f"{', '.join(said)}.", may_pass=may_pass)

    def is_old(self, connection: Any) -> bool:
        """Return whether this process has found another master since a connection was made.

        A master that was frozen does not know that it is none any more until the Sentinels tell it, which may take ten
        seconds: what it accepts until then is lost.
        """
        found = _found.get(self._key(connection.connection_pool.service_name))
        return found is not None and found != (connection.host, connection.port)

    def _key(self, service_name: str) -> tuple[str, frozenset[str]]:
        key = vars(self).get("_mq_django_key")
        if key is None:
            options = (each.connection_pool.connection_kwargs for each in self.sentinels)
            key = self._mq_django_key = (service_name, frozenset(map(sentinel_address, options)))
        return key


def sentinel_address(options: Mapping[str, Any]) -> str:
    """Return the address of a Sentinel by the options of its connections."""
    host = str(options.get("host"))
    return f"[{host}]:{options.get('port')}" if ":" in host else f"{host}:{options.get('port')}"


def _reason(error: Exception) -> tuple[str, bool]:
    """Return what an error says about a Sentinel, and whether it may be temporary."""
    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError):
        return "refuses the log-in (sentinel_username, sentinel_password)", False
    if isinstance(error, exceptions.ResponseError):
        if "unknown command" in str(error):
            return "is a Redis, not a Sentinel (for one Redis, write redis://HOST:6379/0)", False
        return f"says: {str(error).rstrip('.')}", False
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    detail = cause.strerror if isinstance(cause, OSError) else ""
    return f"does not answer ({detail})" if detail else "does not answer", True
