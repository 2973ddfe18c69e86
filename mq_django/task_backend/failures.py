"""How a failed attempt is told to Django's task API."""

import sys

from mq_django.task_backend.compat import TaskError


class KeptError(TaskError):
    """A failed attempt. Its exception's class is looked up and never imported, because its path comes from Redis."""

    __slots__ = ()

    @property
    def exception_class(self) -> type[BaseException]:
        """Return the exception's class.

        Raises:
            ImportError: this process has not imported the module of that name, or it has no such class.
            ValueError: it is not an exception.
        """
        module, _, name = self.exception_class_path.rpartition(".")
        # Not getattr(): a module may import something when it is asked for a name.
        found = vars(sys.modules[module]).get(name) if module in sys.modules else None
        if found is None:
            raise ImportError(f"No imported module has the exception {self.exception_class_path!r:.300}")
        if isinstance(found, type) and issubclass(found, BaseException):
            return found
        raise ValueError(f"{self.exception_class_path!r:.300} is not an exception")
