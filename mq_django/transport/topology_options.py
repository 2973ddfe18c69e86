"""Options of redis-py for asking Sentinels, or nodes of a cluster, which server is the master."""

from typing import Any

from redis.backoff import NoBackoff
from redis.retry import Retry

#: Short timeouts, so that one that is silent does not delay the next.
TOPOLOGY_OPTIONS: dict[str, Any] = {
    "socket_connect_timeout": 0.5,
    "socket_timeout": 1.0,
    "retry": Retry(NoBackoff(), 0),
    "protocol": 2,
}
