"""The handler that calls a partner, which may be away."""

import os
import time
from pathlib import Path
from typing import Any

from mq_django import Breaker, handler
from mq_django.core.messages import Message
from mq_django.signals import breaker_opened
from tests.chaos.observing import note
from tests.chaos.settings import PARTNER_FLAG, PARTNER_OF, PARTNER_PROBE, QUEUE


class PartnerAway(Exception):
    """Nobody answers."""


def call(message: Message) -> None:
    """Call the partner."""
    is_away = Path(os.environ["CHAOS_HISTORY"], PARTNER_FLAG).exists()
    note("called", id=message.data["id"], away=is_away)
    time.sleep(0.03)
    if is_away:
        raise PartnerAway(message.data["id"])
    note("effect", id=message.data["id"], attempt=message.attempt)


def _opened(**_: Any) -> None:
    note("opened")


def register() -> None:
    """Register the handler. A module that does so by itself is found, and imported in every scenario."""
    handler(QUEUE, "call", breaker=Breaker(on=[PartnerAway], of=PARTNER_OF, probe=PARTNER_PROBE))(call)
    breaker_opened.connect(_opened)
