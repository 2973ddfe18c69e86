"""`mq status --limits`: how far the limits of queues are used; and the verb `line`: what a key waits for."""

from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError

from mq_django.conf import QueueConfig, get_config
from mq_django.core.limits import Limits, Rate
from mq_django.core.redaction import redact_forms
from mq_django.core.texts import escape
from mq_django.errors import ConnectionLost, ConnectionRejected
from mq_django.inspector import key_lines, plans
from mq_django.inspector.explain import head_words
from mq_django.inspector.key_lines import KeyLine, LineHead
from mq_django.inspector.plans import LimitUse
from mq_django.management.job_verbs import result_of
from mq_django.management.terminal import Options, Terminal, VerbResult, columns, confirm, table, with_away


def limits(options: Options, _: Terminal) -> VerbResult:
    """Show the limits of queues, their use, and the keys with parked messages."""
    config = get_config()
    configs = [config.queue(name) for name in options["queues"] or sorted(config.queues)]
    rows: list[dict[str, Any]] = []
    away: dict[str, str] = {}
    for found in configs:
        if found.limits and found.connection not in away:
            try:
                use = plans.limits(found.name, count=options["keys"])
            except (ConnectionLost, ConnectionRejected) as error:
                # One timeout is enough to know that a server cannot be reached.
                away[found.connection] = str(error)
            else:
                rows.append(_row(found, use))
    errors = {found.name: away[found.connection] for found in configs if found.limits and found.connection in away}
    return with_away(rows, [*_lines(rows)] or ["No queue has limits."], errors)


def _row(config: QueueConfig, use: LimitUse | None) -> dict[str, Any]:
    if use is None:
        return {"queue": config.name, "limits": [], "parked": 0, "parked_keys": 0, "keys": [], "noisy": []}
    found, noisy = config.limits, plans.noisiest(config.name) if use.parked else ()
    counts = [_count("concurrency", found.concurrency, use.concurrent), *_of_keys(found)]
    rates = [_rate("rate", found.rate, use.granted), _rate("rate of each key", found.key_rate)]
    return {
        "queue": config.name,
        "limits": [limit for limit in (*rates, *counts) if limit],
        "parked": use.parked,
        "parked_keys": use.keys,
        "keys": [
            {"key": redact_forms(key.key), **columns(key, "parked granted concurrent next_check_ms")}
            for key in use.page
        ],
        "noisy": [{"key": redact_forms(each.key), "share": round(each.share, 3)} for each in noisy],
    }


def _of_keys(limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield what the messages of a key wait for besides a rate."""
    if limits.ordered:
        yield _count("one message of each key at a time, in order", 1)
    else:
        yield _count("concurrency of each key", limits.key_concurrency)
    if limits.fair is not None:
        weights = ", ".join(f"{key}: {weight:g}" for key, weight in limits.fair)
        yield {"limit": f"keys take turns{weights and f' ({weights})'}", "most": None, "window_s": None, "used": None}


def _rate(name: str, rate: Rate | None, used: int | None = None) -> dict[str, Any]:
    if rate is None:
        return {}
    return {"limit": name, "most": rate.count, "window_s": rate.window.total_seconds(), "used": used}


def share_words(share: float) -> str:
    """Return the share of a key of the parked messages."""
    return f"about {share * 100:.0f} % of the parked messages"


def _count(name: str, most: int | None, used: int | None = None) -> dict[str, Any]:
    return {} if most is None else {"limit": name, "most": most, "window_s": None, "used": used}


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield from table([{"queue": row["queue"], **limit} for row in rows for limit in row["limits"]])
    keys = [{"queue": row["queue"], **key} for row in rows for key in row["keys"]]
    if keys:
        yield ""
        yield from table(keys)
    for row in rows:
        for each in row["noisy"]:
            yield f"{row['queue']}: key {escape(each['key'])} has {share_words(each['share'])}."
    for row in rows:
        if row["parked_keys"] > len(row["keys"]):
            yield f"{row['queue']} has {row['parked']} parked messages of {row['parked_keys']} keys."


# The verb `line` of the command `mq`: what the messages of a key wait for.


def line(options: Options, _: Terminal) -> VerbResult:
    """Show what the messages of a key wait for, or let the key go on."""
    found = key_lines.key_line(options["queue"], options["key"])
    if options["skip"]:
        return _skip(found, options)
    if options["redrive"]:
        return _redrive(found, options)
    return VerbResult(_line_row(found), _line_text(found))


def _skip(found: KeyLine, options: Options) -> VerbResult:
    head = _head(found)
    if not head.can_be_skipped:
        raise CommandError(f"It cannot be skipped. The next messages wait for {head_words(head, found.now_ms)}")
    name = escape(head.id)
    confirm(options, f"This lets the next messages of the key run before message {name}, which is then out of order.")
    word = key_lines.skip(found.queue, found.hash, head.token)
    if word != "SKIPPED":
        line = key_lines.line_of(found.queue, found.hash)
        now = "the key waits for no message."
        if line.blocking is not None:
            now = f"the next messages wait for {head_words(line.blocking, line.now_ms)}"
        raise CommandError(f"Nothing was skipped, because the line has changed meanwhile: {now}")
    said = f"skipped message {name}: it stays where it is ({head.place}), and is out of order from now on"
    return VerbResult({"skipped": head.id, "place": head.place}, [said])


def _redrive(found: KeyLine, options: Options) -> VerbResult:
    head = _head(found)
    if head.place != "dead":
        waits = f"The next messages wait for {head_words(head, found.now_ms)}"
        raise CommandError(f"There is no dead letter to redrive. {waits}")
    confirm(options, f"This redrives the dead letter {escape(head.id)}, before the other messages of its key.")
    return result_of(key_lines.redrive_head(found.queue, head), "redriven", ids=1)


def _head(found: KeyLine) -> LineHead:
    if found.blocking is None:
        why = "has no message that the others wait for" if found.ordered else "is in a queue without ORDERED"
        raise CommandError(f"Nothing holds up this key: it {why}.")
    return found.blocking


def _line_row(found: KeyLine) -> dict[str, Any]:
    return {
        **columns(found, "queue key? ordered parked tokens"),
        "first": [columns(message, "id name published_ms") for message in found.first],
        "heads": [columns(head, "id name attempt place consumer? since_ms due_ms") for head in found.heads],
    }


def _line_text(found: KeyLine) -> Iterator[str]:
    row = _line_row(found)
    if found.blocking is not None and found.parked:
        yield f"The parked messages wait for {head_words(found.blocking, found.now_ms)}"
        yield ""
    if found.heads:
        yield from table(row["heads"])
        yield ""
    yield from table(row["first"])
    yield f"{found.parked} parked"
