"""How often a server has run a command."""

import redis


def calls(client: redis.Redis, *names: str) -> int:
    """Return how often these commands were called in all."""
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in names)


def script_calls(client: redis.Redis) -> int:
    """Return how often scripts were run: a connection sends each in full the first time, and by its hash then."""
    return calls(client, "eval", "evalsha")
