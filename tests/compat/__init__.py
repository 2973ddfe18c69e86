"""Consumers and producers of an older version and of this one on the same keys, as in a rolling deploy."""
