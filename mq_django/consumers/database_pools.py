"""The pools of connections that Django makes for PostgreSQL, compared with the threads that need connections."""

from collections.abc import Iterator, Mapping

from django.db import connections

from mq_django.core.texts import path_of

#: Handlers that a consumer process runs at once, unless it is started with another number.
DEFAULT_THREADS = 8
#: Connections of a pool without `min_size` and `max_size`, as psycopg_pool makes it.
_DEFAULT_SIZE = 4


def pools() -> Iterator[tuple[str, int]]:
    """Yield the alias of each database with a pool, and the most connections that the pool has."""
    for alias in connections:
        database = connections.databases[alias]
        options = database.get("OPTIONS", {}).get("pool")
        if options and "postg" in database["ENGINE"]:
            given: Mapping[str, object] = options if isinstance(options, Mapping) else {}
            most = given.get("max_size") or given.get("min_size") or _DEFAULT_SIZE
            if isinstance(most, int):
                yield alias, most


def small_pools(threads: int) -> list[str]:
    """Return a sentence for each database whose pool has fewer connections than a consumer process has threads."""
    return [
        f"The pool of DATABASES[{alias!r}] has at most {most} connections, and a consumer process runs up to {threads} "
        "handlers at once: the others wait for a connection, and fail after a time"
        for alias, most in pools()
        if most < threads
    ]


def pool_hint(error: BaseException) -> str:
    """Return what to look at if an error says that a pool had no free connection; "" for any other error."""
    # Not error.__cause__, which a class may let fail.
    cause = path_of(type(vars(BaseException)["__cause__"].__get__(error)))
    if not (cause.startswith("psycopg_pool") and cause.endswith(".PoolTimeout")):
        return ""
    sizes = [f"that of DATABASES[{alias!r}] has at most {most}" for alias, most in pools()]
    return f" The pool had no free connection ({', '.join(sizes)}): raise its max_size, or start with fewer --threads."
