"""The project of the examples has tests of its own, which run in it."""

collect_ignore = ["project"]
