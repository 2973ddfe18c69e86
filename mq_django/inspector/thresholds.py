"""The figures above which a queue has a problem."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The figures above which a queue has a problem. None: no figure is a problem."""

    #: Seconds for which the oldest message that is ready, or was fetched and has not started, has waited.
    max_age: float | None = 60
    #: Ready messages, and those that were fetched and have not started.
    max_ready: int | None = None
    #: Dead letters, however old.
    max_dead: int | None = None
    #: Messages that became dead letters in the last half hour.
    max_buried: int | None = 0
    #: Messages without a handler in any consumer.
    max_unhandled: int | None = 0
    #: Messages by which the queue has grown in ten minutes. Growth that is not steady, or below 100, counts as 0.
    max_growth: int | None = 0


#: Those of the admin.
USUAL = Thresholds()


def exceeds(figure: float, most: float | None) -> bool:
    """Return whether a figure is above its threshold."""
    return most is not None and figure > most
