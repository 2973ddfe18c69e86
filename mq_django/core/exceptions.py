"""The paths of exception classes in a traceback, and the classes by path.

To look up a class nothing is imported, because paths come from Redis.
"""

import sys

#: The most characters of a path.
LONGEST = 1000


def path_of(kind: type[BaseException]) -> str:
    """Return the path of an exception's class as tracebacks show it."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def exception_of(path: str) -> type[BaseException] | None:
    """Return an exception class by its path, or None when no imported module has it.

    A path is the module and the qualified name, or only the name for a builtin exception.
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
        # Not getattr(), because a module's __getattr__ may import something.
        found = vars(found).get(name) if hasattr(found, "__dict__") else None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None
