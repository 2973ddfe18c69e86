"""The verb `limits` of the command `mq`: how far the limits of queues are used."""

import argparse
from collections.abc import Iterator
from typing import Any

from mq_django.conf import QueueConfig, get_config
from mq_django.core.limits import Limits, Rate
from mq_django.core.redaction import redact_forms
from mq_django.core.visible import escape
from mq_django.errors import ConnectionLost, ConnectionRejected
from mq_django.inspector import plans
from mq_django.inspector.plans import LimitUse
from mq_django.management.argument_types import page_size
from mq_django.management.as_dict import moment_text
from mq_django.management.tables import away_text, table
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult

#: The most noisy keys of a queue that are shown.
MAX_NOISY = 5


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("queues", nargs="*", help="Default: all queues with limits.")
    parser.add_argument(
        "--keys", type=page_size, default=20, help="The most keys with parked messages of a queue. Default: 20."
    )


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
    lines = list(_lines(rows)) or ["No queue has limits."]
    rows += ({"queue": name, "error": error} for name, error in errors.items())
    return VerbResult(rows, lines, away_text(errors))


def _row(config: QueueConfig, use: LimitUse | None) -> dict[str, Any]:
    if use is None:
        return {"queue": config.name, "limits": [], "parked": 0, "parked_keys": 0, "keys": [], "noisy": []}
    found = config.limits
    counts = [
        _count("concurrency", found.concurrency, use.concurrent),
        *_of_keys(found),
    ]
    rates = [_rate("rate", found.rate, use.granted), _rate("rate of each key", found.key_rate)]
    return {
        "queue": config.name,
        "limits": [limit for limit in (*rates, *counts) if limit],
        "parked": use.parked,
        "parked_keys": use.keys,
        "keys": [
            {
                "key": redact_forms(key.key),
                "parked": key.parked,
                "granted": key.granted,
                "concurrent": key.concurrent,
                "next_check": moment_text(key.next_check_ms),
            }
            for key in use.page
        ],
        "noisy": [{"key": redact_forms(each.key), "share": round(each.share, 3)} for each in use.noisiest[:MAX_NOISY]],
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
    """Return the share of a key of the messages that were fetched in this hour."""
    return f"about {share * 100:.0f} % of the messages fetched this hour"


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


VERBS = (Verb("limits", "Show the limits of queues and their use.", limits, add_options),)
