"""How often processes send heartbeats, and how long a silence means that one is dead."""


def interval(visibility_seconds: float) -> float:
    """Return the seconds between heartbeats: a silence that means death holds several."""
    return min(3.0, visibility_seconds / 3.5)


def silence_limit(visibility_seconds: float) -> float:
    """Return the seconds without a heartbeat after which others take a supervisor for dead.

    One interval less than the visibility timeout, because a beat may be seen one interval after it was made.
    """
    return visibility_seconds - interval(visibility_seconds)


def held_for(visibility_seconds: float) -> float:
    """Return the seconds, from when a heartbeat was sent, in which nobody takes its sender for dead."""
    return silence_limit(visibility_seconds) - min(0.1, visibility_seconds / 20)
