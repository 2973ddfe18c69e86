"""A store of a supervisor that reports how late it makes delayed messages ready."""

import time
from collections.abc import Mapping
from typing import Any, cast

from mq_django.consumers.measuring import Measurers, SupervisorMeasurer
from mq_django.stores.base import Promoted, Store


def measured_promotions(stores: Mapping[int, Store]) -> Mapping[int, Store]:
    """Return stores that report to the measurer of this process; without one, the stores themselves."""
    found = Measurers.supervisor
    if found is None:
        return stores
    return {number: cast("Store", MeasuredPromotion(store, found)) for number, store in stores.items()}


class MeasuredPromotion:
    """Calls a store, and reports how late its promotions are."""

    def __init__(self, store: Store, measurer: SupervisorMeasurer) -> None:
        self._store = store
        self._measurer = measurer
        #: When the next message is due, on the monotonic clock, as the last promotion returned it; None: not known.
        self._due: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def promote(self, *, limit: int) -> Promoted:
        """See Store.promote()."""
        asked = time.monotonic()
        promoted = self._store.promote(limit=limit)
        # Redis read its clock about half-way through the round trip.
        now, due = (asked + time.monotonic()) / 2, self._due
        if promoted.moved and due is not None and due <= now:
            Measurers.report(self._measurer.promoted, self._store.config.name, now - due)
        if promoted.next_us is None:
            self._due = None
        elif promoted.next_us or not promoted.moved:
            self._due = now + promoted.next_us / 1e6
        # Else more than a batch is due, so the next one was due at about the same time.
        return promoted
