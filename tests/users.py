"""Redis users who may do what the documentation says, and nothing else."""

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from tests import on_cluster

SETTINGS_PAGE = Path(__file__).parent.parent / "docs" / "settings.md"


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


@contextmanager
def user(client: redis.Redis, url: str, rules: Sequence[str]) -> Iterator[str]:
    """Make a user for a while, and yield the URL that logs it in."""
    name = f"u{secrets.token_hex(4)}"
    try:
        client.execute_command("ACL", "SETUSER", name, "on", ">secret", *rules)
    except redis.ResponseError as error:
        pytest.skip(f"this server lets nobody make users: {error}")
    scheme, _, rest = url.partition("://")
    try:
        yield f"{scheme}://{name}:secret@{rest}"
    finally:
        client.execute_command("ACL", "DELUSER", name)
