"""Redis users who may do what the documentation says, and nothing else."""

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from mq_django.transport import scripts
from tests import on_cluster

SETTINGS_PAGE = Path(__file__).parent.parent / "docs" / "settings.md"

#: What a client says at its beginning, and what it sends if the server does not know a script.
BEGINNING = {"auth", "hello", "ping", "select", "client|setname", "eval", "evalsha", "script|load"}
#: What the start of `runconsumer` asks for, and does without.
DISPENSABLE = {"command|info", "config|get"}
#: Commands of which a user gets single subcommands.
CONTAINERS = {"xgroup", "xinfo", "memory"}
CALL = re.compile(r"redis\.p?call\(\s*'(\w+)'(?:,\s*'([a-z]+)')?")
#: What scripts run by a name in a variable.
NAMED = {
    "dead_list": {"xrange", "xrevrange"},
    "topic_page": {"xrange", "xrevrange"},
    "partitions_record": {"hlen", "xlen"},
}


def rules_of(store: str, namespace: str) -> list[str]:
    """Return the rules that the documentation has for the user of one queue of a store, in a namespace of a test."""
    page = SETTINGS_PAGE.read_text(encoding="utf-8")
    (every,) = re.findall(r"^ACL SETUSER shop on >secret (.*)$", page, re.MULTILINE)
    (patterns,) = re.findall(rf"^\| [^|]*\(`{store}`\) \| `([^|]+)` \|$", page, re.MULTILINE)
    if on_cluster.URL:
        every += " " + re.findall(r"^On a Redis Cluster a user needs `([^`]+)`", page, re.MULTILINE)[0]
    own = patterns.replace("rsmq:", on_cluster.tag(f"{namespace}:r") + ":")
    own = re.sub(r"(?<=[~&])mq:", f"{namespace}:", own)
    return [*every.split(), *own.split()]


def line_of(role: str) -> list[str]:
    """Return the rules of the documentation for the user of a role, without keys and channels."""
    page = SETTINGS_PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^ACL SETUSER {role} on >secret (.*)$", page, re.MULTILINE)[0].split()


def granted_to(role: str) -> set[str]:
    """Return the commands that the documentation grants to a role, without those of the beginning."""
    return {rule[1:] for rule in line_of(role) if rule.startswith("+")} - BEGINNING


@contextmanager
def user(client: redis.Redis, url: str, rules: Sequence[str]) -> Iterator[str]:
    """Make a user for a while, and yield the URL that logs it in."""
    name = f"u{secrets.token_hex(4)}"
    try:
        client.execute_command("ACL", "SETUSER", name, "on", ">secret", *rules)
    except redis.ResponseError as error:
        # Anything else is an error in the rules.
        if not (isinstance(error, redis.exceptions.NoPermissionError) or str(error).startswith("unknown ")):
            raise
        pytest.skip(f"this server lets nobody make users: {error}")
    scheme, _, rest = url.partition("://")
    try:
        yield f"{scheme}://{name}:secret@{rest}"
    finally:
        client.execute_command("ACL", "DELUSER", name)


@contextmanager
def noting_commands(client: redis.Redis, needed: set[str]) -> Iterator[None]:
    """Add the commands that a block sends, and those in its scripts, also of cases that do not happen."""
    names: set[str] = set()
    with pytest.MonkeyPatch.context() as patches:
        for function, folder in (("command", ""), ("with_prelude", "preludes/"), ("within", "around/")):
            patches.setattr(scripts, function, _noting(function, folder, names))
        before = _calls(client)
        yield
        after = _calls(client)
    # The first INFO counts itself afterwards.
    sent = {name for name, calls in after.items() if calls > before.get(name, 0) + (name == "info")}
    needed |= sent.union(*map(commands_in, names)) - BEGINNING - DISPENSABLE


def _noting(function: str, folder: str, names: set[str]) -> Callable[..., scripts.Command]:
    """Return a function of `scripts` that also notes which script it is given."""
    make = getattr(scripts, function)

    def noted(*args: Any, **options: Any) -> scripts.Command:
        names.add(folder + (args[1] if folder else args[0]))
        made: scripts.Command = make(*args, **options)
        return made

    return noted


def _calls(client: redis.Redis) -> dict[str, int]:
    """Return how often each command was sent, also by scripts, and also if it was refused."""
    stats = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): row["calls"] + row["rejected_calls"] for name, row in stats.items()}


def commands_in(script: str) -> set[str]:
    """Return the commands in a script."""
    found = CALL.findall(scripts.load(script).text)
    return {f"{name}|{sub}" if name in CONTAINERS else name for name, sub in found} | NAMED.get(script, set())
