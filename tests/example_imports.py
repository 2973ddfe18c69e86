"""Says that it was imported: nothing may do so by a name that comes from Redis."""


class Marked(Exception):
    pass


raise AssertionError("imported by a name from Redis")
