"""Failed attempts in the form of Django's task API."""

from mq_django.core.exceptions import object_of, repr_of
from mq_django.task_backend.compat import TaskError


class LooksUpException:
    """The class of its exception is never imported, because the path comes from Redis."""

    __slots__ = ()
    exception_class_path: str

    @property
    def exception_class(self) -> type[BaseException]:
        """Return the exception's class.

        Raises:
            ImportError: no imported module has it.
            ValueError: it is no exception.
        """
        found = object_of(self.exception_class_path)
        if found is None:
            raise ImportError(f"No imported module has the exception {repr_of(self.exception_class_path, 300)}")
        if not isinstance(found, type) or not issubclass(found, BaseException):
            text = f"{repr_of(self.exception_class_path, 300)} does not reference a valid exception."
            raise ValueError(text)  # noqa: TRY004 - as Django does
        return found


class AttemptError(LooksUpException, TaskError):
    """A failed attempt."""

    __slots__ = ()
