"""How queues live in Redis, and nothing else that does."""
