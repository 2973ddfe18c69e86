"""How often processes send heartbeats, and after how much silence they count as dead."""


def interval(visibility_seconds: float) -> float:
    """Return the seconds between heartbeats: several fit into the visibility timeout."""
    return min(3.0, visibility_seconds / 3.5)


def silence_limit(visibility_seconds: float) -> float:
    """Return the seconds without a heartbeat after which a supervisor counts as dead.

    One interval less than the visibility timeout, because a heartbeat may be seen one interval after it was sent.
    """
    return visibility_seconds - interval(visibility_seconds)


def held_for(visibility_seconds: float) -> float:
    """Return the seconds after a heartbeat in which no supervisor takes its sender for dead."""
    return silence_limit(visibility_seconds) - min(0.1, visibility_seconds / 20)
