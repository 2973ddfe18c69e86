"""The usage of a queue's limits, and the keys with parked messages."""

from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from mq_django.admin.ui import charts, text
from mq_django.admin.ui.page import SEE_DATA, Page
from mq_django.conf import get_config
from mq_django.core.limits import Limits, Rate, Weights
from mq_django.core.redaction import redact_forms
from mq_django.inspector import plans
from mq_django.inspector.noisy_keys import KeyShare
from mq_django.inspector.plans import KeyUse, LimitUse

#: The most keys with parked messages that are listed.
MAX_KEYS = 20
#: The most noisy keys that are listed.
MAX_NOISY = 5


def section(page: Page, name: str) -> dict[str, Any]:
    """Return a queue's limits, their usage, and the keys with parked messages. Keys may contain message data."""
    limits, use = get_config().queue(name).limits, plans.limits(name, count=MAX_KEYS)
    if use is None:
        return {}
    return {
        "limits": _rows(limits, use),
        "limit_keys": [_key(page, name, limits, found, use.now_ms) for found in use.page],
        "keys_waiting": text.number(use.keys),
        "keys_unlisted": text.number(use.keys - len(use.page)) if use.keys > len(use.page) else "",
        "parked": text.number(use.parked),
        "has_key_rate": limits.key_rate is not None,
        "has_key_concurrency": limits.key_concurrency is not None,
        **({"keys": [_noisy(page, name, found) for found in use.noisiest[:MAX_NOISY]]} if limits.of_keys else {}),
    }


def _rows(limits: Limits, use: LimitUse) -> list[dict[str, Any]]:
    rows = []
    if limits.rate is not None:
        rows.append(_used(_("Rate of the queue"), _rate(limits.rate), use.granted, limits.rate.count))
    if limits.concurrency is not None:
        rows.append(
            _used(_("Concurrency of the queue"), text.number(limits.concurrency), use.concurrent, limits.concurrency)
        )
    if limits.key_rate is not None:
        rows.append({"label": _("Rate of each key"), "limit": _rate(limits.key_rate)})
    if limits.ordered:
        rows.append({"label": _("Order"), "limit": _("one message of each key at a time, in order")})
    elif limits.key_concurrency is not None:
        rows.append({"label": _("Concurrency of each key"), "limit": text.number(limits.key_concurrency)})
    if limits.fair is not None:
        rows.append({"label": _("Turns"), "limit": _turns(limits.fair)})
    return rows


def _turns(weights: Weights) -> SafeString | str:
    if not weights:
        return _("keys take turns")
    shown = text.visible(", ".join(f"{key}: {weight:g}" for key, weight in weights), limit=500)
    return format_html("{} ({})", _("keys take turns"), shown)


def shown_key(page: Page, key: str) -> SafeString | str:
    """Return a key as HTML, for users who may see data; secrets in it are replaced already."""
    if not page.can(SEE_DATA):
        return _("hidden")
    return text.visible(key, limit=80) if key else _("no key")


def share_words(share: float) -> str:
    """Return the share of a key of the messages that were fetched in this hour."""
    return _("about %(share)s of the messages fetched this hour") % {"share": text.percent(share)}


def _noisy(page: Page, name: str, found: KeyShare) -> dict[str, Any]:
    words = share_words(found.share)
    return {
        "key": shown_key(page, redact_forms(found.key)),
        "url": page.url("line", name, str(found.hash)),
        "share": words,
        "meter": charts.meter(found.share, label=words, bad=False),
    }


def _used(label: str, limit: str, used: int, most: int) -> dict[str, Any]:
    words = _of(used, most)
    return {"label": label, "limit": limit, "used": words, "meter": _meter(used, most, words)}


def _meter(used: int, most: int, label: str) -> SafeString:
    return charts.meter(used / most, label=label, bad=used >= most)


def _key(page: Page, name: str, limits: Limits, found: KeyUse, now_ms: int) -> dict[str, Any]:
    rate, most = limits.key_rate, limits.key_concurrency
    return {
        "key": shown_key(page, redact_forms(found.key)),
        "url": _line_url(page, name, found),
        "parked": text.number(found.parked),
        "granted": "" if rate is None else _of(found.granted, rate.count),
        "concurrent": "" if most is None else _of(found.concurrent, most),
        "next_check": _("now") if found.next_check_ms <= now_ms else text.moment(found.next_check_ms, now=now_ms),
    }


def _line_url(page: Page, name: str, found: KeyUse) -> str:
    """Return the URL of the line of a key: with partitions, of the one that has it."""
    config = get_config().queue(name)
    if config.parts and not found.key:
        # Each partition has a line of messages without a key.
        return page.queue_url(name)
    return page.url("line", config.place_of(key=found.key).name, str(found.hash))


def _of(used: int, most: int) -> str:
    return _("%(used)s of %(most)s") % {"used": text.number(used), "most": text.number(most)}


def _rate(rate: Rate) -> str:
    return _("%(count)s in %(time)s") % {"count": text.number(rate.count), "time": text.period(rate.window)}
