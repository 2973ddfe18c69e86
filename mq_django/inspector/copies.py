"""A message as texts to copy: as JSON, and as the commands that publish it again."""

import json
import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime

from mq_django.conf import get_config
from mq_django.core import clock
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.message_format import moment
from mq_django.core.partitions import public_name
from mq_django.core.redaction import is_redacted, redact_forms
from mq_django.inspector.message_views import MessageView, exported

#: A word that redis-cli reads without quotation marks.
_PLAIN = re.compile(r"[\w.:{}@*+|/=-]+", re.ASCII)


def as_json(view: MessageView) -> str:
    """Return a message as JSON."""
    return json.dumps(exported(view), indent=2, ensure_ascii=False)


def as_publish(queue: str, view: MessageView) -> str:
    """Return the command of a shell that publishes a message; "" if its queue takes none, as the group of a topic."""
    if GROUP_SEPARATOR in queue:
        return ""
    data = json.dumps(view.data, ensure_ascii=False)
    words = ["manage.py", "mq", "publish", public_name(queue), view.name, data]
    if view.key is not None:
        words += ["--key", redact_forms(view.key)]
    left_ms = 0 if view.state != "delayed" or view.at_ms is None else view.at_ms - clock.now_ms()
    if left_ms > 0:
        words += ["--delay", str(-(-left_ms // 1000))]
        words += [] if view.unique is None else ["--unique", view.unique]
    if view.priority:
        words.append(f"--priority={view.priority}")
    if view.headers:
        words += ["--headers", json.dumps(dict(view.headers), ensure_ascii=False)]
    return shlex.join(words)


def as_xadd(queue: str, view: MessageView) -> str:
    """Return the command of redis-cli that makes a message ready; "" for RSMQ's format and groups of topics."""
    config = get_config().queue(queue)
    # Formats that have no priorities at all have no stream to which others publish.
    if "priority" in config.unsupported:
        return ""
    fields = ["type", view.name]
    for name, value in _attributes(view):
        fields += [name, value]
    data = json.dumps(view.data, ensure_ascii=False)
    return " ".join(map(_quoted, ["XADD", config.keys.ready, "*", *fields, "data", data]))


def _attributes(view: MessageView) -> Iterator[tuple[str, str]]:
    if view.key is not None:
        yield "partitionkey", redact_forms(view.key)
    if view.expires_ms is not None and 0 <= view.expires_ms < datetime.max.replace(tzinfo=UTC).timestamp() * 1000:
        yield "expires", moment(view.expires_ms)
    if view.priority:
        yield "priority", str(view.priority)
    yield from view.headers.items()


def has_secrets(view: MessageView) -> bool:
    """Return whether placeholders stand for secrets in the data, the headers or the key of a message."""
    return is_redacted([view.data, dict(view.headers), redact_forms(view.key or "")])


def _quoted(word: str) -> str:
    """Return a word as redis-cli reads it."""
    if _PLAIN.fullmatch(word):
        return word
    return '"' + "".join(map(_escaped, word)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="replace"))
