"""System checks of the settings. They do not connect to Redis."""

import sys
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.cache import DEFAULT_CACHE_ALIAS
from django.core.checks import CheckMessage, Error
from django.db import connections
from django.urls import URLResolver, get_resolver

from mq_django import conf
from mq_django.consumers.outage import DEFAULT_THREADS, small_pools
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.texts import listing, text_of
from mq_django.discovery import import_declaring
from mq_django.errors import ConfigurationError
from mq_django.inbox.entries import missing_tables
from mq_django.inbox.once import once_databases, unknown_database
from mq_django.middleware import handling_chain, publishing_chain
from mq_django.producers.schedules import check_task
from mq_django.registry import declared, groups, handlers, own_names, queues_with_handlers, schedules
from mq_django.registry import kinds as handler_kinds
from mq_django.transport.cluster_topology import is_cluster
from mq_django.transport.locations import is_django_redis, make_cluster, make_pool, servers_of
from mq_django.transport.sentinel_urls import SentinelURL

TAG = "mq_django"

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
#: Django's own backend. Its clear() flushes a Redis database, as that of django-redis does.
_BUILTIN = "django.core.cache.backends.redis"

#: A server and one of its databases.
Database = tuple[str, str]


def _found(code: str, message: str, hint: str) -> CheckMessage:
    """Return what a check has found: an error or a warning, by the first letter of its number."""
    kind = Error if code.startswith("mq_django.E") else checks.Warning
    return kind(message, hint=hint, id=code)


Check = Callable[..., list[CheckMessage]]


def _of_settings(find: Callable[[conf.Config], Iterable[CheckMessage]], *, only_valid: bool = False) -> Check:
    """Make a system check of a function that gets the settings."""

    def check(**_: Any) -> list[CheckMessage]:
        config, problems = conf.read(getattr(settings, "MQ_DJANGO", {}))
        return [] if problems and only_valid else list(find(config))

    check.__name__, check.__doc__ = find.__name__, find.__doc__
    return check


#: It finds nothing while the settings have errors: perhaps of these very queues and topics.
_of_valid_settings = partial(_of_settings, only_valid=True)


def check_settings(**_: Any) -> list[CheckMessage]:
    """Report all errors in `MQ_DJANGO`."""
    _config, problems = conf.read(getattr(settings, "MQ_DJANGO", {}))
    return [_found("mq_django.E001", problem.message, problem.hint) for problem in problems]


def check_connection(**_: Any) -> list[CheckMessage]:
    """Check the connections of the queues and topics, and whether caches use the same databases."""
    config, problems = conf.read(getattr(settings, "MQ_DJANGO", {}))
    if any(problem.setting.endswith("['CONNECTION']") for problem in problems):
        return []
    return [message for connection in config.connections() for message in _check_server(config, connection)]


def _check_server(config: conf.Config, connection: str) -> list[CheckMessage]:
    """Check one connection; "": that of the project."""
    location = connection or config.connection
    if location == conf.EMBEDDED:
        return []
    if is_cluster(location):
        found = []
    elif location.startswith(conf.URL_SCHEMES):
        found = list(_neighbours(None, _database(location)))
    else:
        found = _check_alias(location, config.where_is(connection))
    return found if any(message.is_serious() for message in found) else [*found, *_check_pool(config, connection)]


def _check_pool(config: conf.Config, connection: str) -> Iterator[CheckMessage]:
    """Create a connection pool, which does not connect yet, to check its options."""
    try:
        if is_cluster(connection or config.connection):
            make_cluster(config, {}, connection)
        else:
            make_pool(config, {}, connection)
    except ConfigurationError as error:
        hint = "Correct the URL or the alias. docs/settings.md shows what they may have."
        yield _found("mq_django.E008", str(error), hint)


def _check_alias(alias: str, setting: str) -> list[CheckMessage]:
    named = f"{setting} names {conf.shown_setting(alias)}"
    cache = settings.CACHES.get(alias)
    if cache is None:
        hint = f'Name one of CACHES ({listing(settings.CACHES)}), a redis:// URL, or "embedded".'
        return [_found("mq_django.E002", f"{named}, which is not in CACHES.", hint)]
    if not is_django_redis(cache):
        hint = f"Give CACHES[{alias!r}] the BACKEND django_redis.cache.RedisCache, or name a redis:// URL."
        return [_found("mq_django.E003", f"{named}, a cache whose BACKEND is not django-redis.", hint)]
    servers = servers_of(cache)
    if not servers or not servers[0].startswith(conf.SERVER_SCHEMES):
        hint = f"Give CACHES[{alias!r}] a LOCATION that starts with one of {', '.join(conf.SERVER_SCHEMES)}"
        if servers and servers[0].startswith(conf.SENTINEL_SCHEMES):
            hint = f"Name this URL in {setting}. django-redis does not read it."
        return [_found("mq_django.E004", f"{named}, a cache without a LOCATION for Redis.", hint)]
    return list(_neighbours(alias, _database(servers[0], cache)))


def check_modules(**_: Any) -> list[CheckMessage]:
    """Report modules that declare tasks, handlers or subscribers, and cannot be imported."""
    hint = "Correct the module, or set MQ_DJANGO['DISCOVER'] to False and name the modules to import in 'MODULES'."
    message = "The module {} cannot be imported, so that its tasks and handlers do not run: {}"
    return [
        _found(code, message.format(failed.module, failed.text), advice)
        for failed in import_declaring()
        for code, advice in [
            ("mq_django.E014", "Correct MQ_DJANGO['MODULES'].") if failed.is_named else ("mq_django.W009", hint)
        ]
    ]


@_of_valid_settings
def check_handlers(config: conf.Config) -> Iterator[CheckMessage]:
    """Report queues and topics that have a handler but are not configured, so that no consumer reads them."""
    topics = dict.fromkeys(name.partition(GROUP_SEPARATOR)[0] for name in groups())
    yield from _unread("mq_django.W003", "subscribers of the topic", topics, config.topics, "TOPICS")
    yield from _unread("mq_django.W004", "handlers of the queue", queues_with_handlers(), config.queues, "QUEUES")


@_of_valid_settings
def check_declared(config: conf.Config) -> Iterator[CheckMessage]:
    """Report tasks, workflows and schedules in code that cannot be used with these settings."""
    where_by_error: dict[str, list[str]] = {}
    for where, check_it in declared():
        try:
            check_it()
        except Exception as error:  # noqa: BLE001 - whatever the task API raises
            where_by_error.setdefault(text_of(error).rstrip("."), []).append(where)
    hint = "Add the queue to MQ_DJANGO['QUEUES'], or name another one in the declaration."
    for text, names in where_by_error.items():
        yield _found("mq_django.E015", f"{_first(names)}: {text}.", hint)
    for entry in schedules().values():
        if entry.queue in config.queues and (problem := conf.problem_of(entry, config.queues)) is not None:
            yield _found("mq_django.E015", problem.message, problem.hint)


@_of_valid_settings
def check_breakers(config: conf.Config) -> Iterator[CheckMessage]:
    """Report breakers that name no exception, and handlers that have a breaker in a queue in RSMQ's format."""
    found = [(f"MQ_DJANGO['QUEUES'][{name!r}]['BREAKER']", each.breaker) for name, each in config.queues.items()]
    found += [(f"MQ_DJANGO['TOPICS'][{name!r}]['BREAKER']", each.breaker) for name, each in config.topics.items()]
    for where, breaker in [*found, *((each.where, each.breaker) for each in handlers())]:
        try:
            if breaker is not None:
                breaker.classes()
        except ConfigurationError as error:
            hint = "Write a class, or the path of one that can be imported."
            yield _found("mq_django.E016", f"{where}: {error}.", hint)
    for each in handlers():
        queue = config.queues.get(each.queue or "")
        if each.breaker and queue is not None and queue.store == "rsmq":
            message = f"{each.where} has breaker=, and its queue {queue.name!r} is in RSMQ's format, which has none."
            yield _found("mq_django.E016", message, "Remove breaker=, or use another queue.")


def _first(names: Sequence[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]


def check_inline_tasks(**_: Any) -> list[CheckMessage]:
    """Report tasks of Django, or of django-tasks, that run where they are enqueued because TASKS is not set."""
    if settings.is_overridden("TASKS") or not (found := sorted(_plain_tasks())):  # type: ignore[misc]
        return []
    hint = (
        "Set TASKS = {'default': {'BACKEND': 'mq_django.task_backend.MQBackend'}}, or use mq_django.task. If it is "
        "intended, name Django's ImmediateBackend in TASKS."
    )
    message = f"TASKS is not set, so {_first(found)} runs where it is enqueued, such as inside a request."
    return [_found("mq_django.W005", message, hint)]


def _plain_tasks() -> set[str]:
    """Return the paths of the tasks of installed apps that have the default backend."""
    # Only what is imported already: a project that uses neither package has neither.
    bases = (sys.modules.get(f"{package}.base") for package in ("django.tasks", "django_tasks"))
    kinds = tuple(base.Task for base in bases if base is not None)
    names = tuple(f"{app.name}." for app in apps.get_app_configs())
    modules = [module for name, module in list(sys.modules.items()) if f"{name}.".startswith(names)]
    return {
        each.module_path
        for module in modules
        for each in list(getattr(module, "__dict__", {}).values())  # None for one that may not be imported
        # isinstance() would evaluate lazy objects, whose class is that of their value.
        if issubclass(type(each), kinds) and each.backend == "default"
    }


def _unread(
    code: str, what: str, names: Iterable[str], configured: Container[str], setting: str
) -> Iterator[CheckMessage]:
    for name in names:
        if name not in configured:
            message = f"There are {what} {name!r}, which is not in MQ_DJANGO['{setting}']."
            yield _found(code, message, f"Add {name!r} to MQ_DJANGO['{setting}'].")


@_of_settings
def check_others_handlers(config: conf.Config) -> Iterator[CheckMessage]:
    """Report handlers of queues that other programs handle: no consumer runs them."""
    for queue in config.queues.values():
        for name in own_names(queue.name) if queue.external else ():
            message = (
                f"There is a handler of {name!r} in the queue {queue.name!r}, whose EXTERNAL is True: it never runs."
            )
            hint = f"Remove the handler, or EXTERNAL from MQ_DJANGO['QUEUES'][{queue.name!r}]."
            yield _found("mq_django.W006", message, hint)


@_of_settings
def check_schedules(config: conf.Config) -> Iterator[CheckMessage]:
    """Report schedules of the settings whose task does not exist, or cannot be called with their arguments."""
    given = getattr(settings, "MQ_DJANGO", {}).get("SCHEDULES", {}) if config.schedules else {}
    for entry in config.schedules.values():
        try:
            # A task in a queue that other programs handle is theirs.
            if "task" in given[entry.name] and not config.queues[entry.queue].external:
                check_task(config.queues[entry.queue], entry.message, entry.data)
        except TypeError as error:
            hint = "Name a task by the path of its function, with arguments that it accepts."
            yield _found("mq_django.E010", f"{entry.where}: {error}.", hint)


@_of_valid_settings
def check_middleware(config: conf.Config) -> Iterator[CheckMessage]:
    """Report middleware that cannot be imported, or cannot run around the handlers of this project."""
    if not config.middleware:
        return
    kinds = frozenset[bool]().union(*(handler_kinds(name) for name in (*config.queues, *groups())))
    wrong: dict[str, None] = {}
    for kind in (None, *kinds):
        try:
            publishing_chain() if kind is None else handling_chain(is_async=kind)
        except ConfigurationError as error:
            wrong[f"{error}."] = None
    hint = 'Correct MQ_DJANGO["MIDDLEWARE"]. docs/reference/middleware.md shows how a middleware is written.'
    for message in wrong:
        yield _found("mq_django.E009", message, hint)


def check_inbox_databases(**_: Any) -> list[CheckMessage]:
    """Report handlers with `@exactly_once` whose database is not in the settings."""
    hint = f"Name one of DATABASES ({listing(connections)}), as in @exactly_once(using='default')."
    sentences = filter(None, map(unknown_database, once_databases()))
    return [_found("mq_django.E013", f"{sentence}.", hint) for sentence in sentences]


def check_database_pools(**_: Any) -> list[CheckMessage]:
    """Report pools of PostgreSQL that have fewer connections than a consumer process has threads."""
    hint = f"Set max_size of OPTIONS['pool'] to {DEFAULT_THREADS} or more, or start runconsumer with fewer --threads."
    sentences = small_pools(DEFAULT_THREADS) if handlers() else ()
    return [_found("mq_django.W011", f"{sentence}.", hint) for sentence in sentences]


def check_inbox_tables(*, databases: Collection[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Report databases without the tables that handlers with `@exactly_once` need.

    `migrate` runs it before it creates them: then nothing is wrong.
    """
    chosen = () if sys.argv[1:2] == ["migrate"] else databases or ()
    return [
        _found("mq_django.W007", f"{sentence}.", "Apply the migrations of mq_django.")
        for using in once_databases()
        if using in connections and using in chosen
        for sentence in missing_tables(using)
    ]


#: The checks of what is declared in code.
OF_DECLARED = (
    check_handlers,
    check_others_handlers,
    check_declared,
    check_inline_tasks,
    check_schedules,
    check_middleware,
    check_inbox_databases,
    check_breakers,
)


def check_metrics_views(**_: Any) -> list[CheckMessage]:
    """Report views of metrics whose token can be guessed."""
    if not getattr(settings, "ROOT_URLCONF", None):
        return []
    weak = [route for route, view in _views(get_resolver()) if getattr(view, "mq_django_weak_token", False)]
    hint = "Set a random token of at least 16 characters, for example that of: openssl rand -hex 32"
    message = "The token of the metrics view at {!r} is empty or short."
    return [_found("mq_django.E011", message.format(route), hint) for route in weak]


def _views(resolver: URLResolver, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the route and the view of each URL pattern."""
    for pattern in resolver.url_patterns:
        route = f"{before}{pattern.pattern}"
        if isinstance(pattern, URLResolver):
            yield from _views(pattern, route)
        else:
            yield route, pattern.callback


@_of_settings
def check_deployment(config: conf.Config) -> Iterator[CheckMessage]:
    """Warn about settings that are suitable for development only."""
    if conf.EMBEDDED in [connection or config.connection for connection in config.connections()]:
        message = "The queues are in an embedded Redis, which only processes of this machine can use."
        hint = "Set MQ_DJANGO['CONNECTION'] to a django-redis alias or a redis:// URL."
        yield _found("mq_django.W002", message, hint)


def _neighbours(alias: str | None, database: Database) -> Iterator[CheckMessage]:
    """Yield a warning for each cache whose clear() would flush the queues."""
    for name, cache in settings.CACHES.items():
        if name == alias:
            # The default cache is always shared with other users.
            shared = name == DEFAULT_CACHE_ALIAS
        else:
            flushes = is_django_redis(cache) or _BUILTIN in str(cache.get("BACKEND"))
            shared = flushes and database in _databases(cache)
        if shared:
            yield _found(
                "mq_django.W001",
                f"The queues share a Redis database with the cache {name!r}: cache.clear() flushes it, "
                "with every message in it.",
                "Use an alias only for queues, with a database of its own, such as redis://localhost:6379/1.",
            )


def _databases(cache: Mapping[str, Any]) -> list[Database]:
    return [_database(server, cache) for server in servers_of(cache)]


def _database(location: str, cache: Mapping[str, Any] | None = None) -> Database:
    """Return the server and the database of a location in a normalized form."""
    try:
        if location.startswith(conf.SENTINEL_SCHEMES):
            # A cache with django-redis's SENTINELS has the name in the place of the host, too.
            found = SentinelURL.read(location)
            location = found.server_url.replace("master/", f"{found.master}/", 1)
        parts = urlsplit(location)
    except ValueError:  # not a valid address
        return (location, "")
    options = (cache or {}).get("OPTIONS")
    asked = parse_qs(parts.query).get("db", [""])[0] or str(options.get("db", "") if isinstance(options, dict) else "")
    if parts.scheme == "unix":
        return (parts.path, asked or "0")
    host = (parts.hostname or "localhost").lower()
    server = "localhost" if host in _LOCAL else host
    return (f"{server}:{_port(location)}", asked or parts.path.strip("/") or "0")


def _port(location: str) -> int:
    try:
        return urlsplit(location).port or 6379
    except ValueError:  # not a number; an error of the connection, not of this check
        return 0
