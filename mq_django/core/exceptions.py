"""Exceptions by the path that tracebacks show, looked up and never imported: paths come from Redis."""

import sys

#: Characters of a path; nobody's is longer.
LONGEST = 1000


def exception_of(path: str) -> type[BaseException] | None:
    """Return the class of an exception by its path, or None when no imported module has such an exception.

    A path is that of its module and its qualified name, or for a builtin exception only its name.
    """
    if len(path) > LONGEST:
        return None
    parts = path.split(".")
    for end in range(len(parts) - 1, -1, -1):
        module = sys.modules.get(".".join(parts[:end]) or "builtins")
        if module is not None:
            return _within(module, parts[end:])
    return None


def _within(found: object, names: list[str]) -> type[BaseException] | None:
    for name in names:
        # Not getattr(): a module may import something when it is asked for a name.
        found = vars(found).get(name) if hasattr(found, "__dict__") else None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None
