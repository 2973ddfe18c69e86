"""The project of the pages has tests of its own, which run in it."""

collect_ignore = ["project"]
