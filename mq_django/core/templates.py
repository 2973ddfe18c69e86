"""Templates with placeholders such as `{instance.pk}`, which only look up attributes."""

import re
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

from mq_django.core.texts import listing, repr_of
from mq_django.errors import ConfigurationError, InvalidMessage

#: Names of public attributes. Private ones give access to classes and from there to everything. No items, no calls.
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*", re.ASCII)
_JSON = (bool, int, float, str, list, dict)

Arguments = Mapping[str, Any]


class Template:
    """A text with placeholders that are filled from arguments.

    Raises:
        ConfigurationError: a placeholder is not a name with attributes.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        #: Pairs of a text and the path of the placeholder after it, or None at the end of the text.
        self._parts: list[tuple[str, list[str] | None]] = []
        try:
            parsed = list(Formatter().parse(text))
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{repr_of(text, 200)} is not a template: {error}") from error
        for before, field, form, conversion in parsed:
            if form or conversion or (field is not None and not _FIELD.fullmatch(field)):
                raise ConfigurationError(
                    f"{repr_of(text, 200)} is not a template: placeholders are names and attributes, such as "
                    "{instance.pk}"
                )
            self._parts.append((before, None if field is None else field.split(".")))

    def fill(self, arguments: Arguments) -> str:
        """Return the text with every placeholder filled.

        Raises:
            InvalidMessage: the value of a placeholder is missing, None, or a method.
        """
        filled = ""
        for before, path in self._parts:
            filled += before
            if path is not None:
                value = self._resolve(path, arguments)
                if value is None:
                    raise InvalidMessage(f"{repr_of('.'.join(path))} in {repr_of(self.text)} is None")
                filled += str(value)
        return filled

    def value(self, arguments: Arguments) -> Any:
        """Return the value of a template that is a single placeholder.

        It is text if JSON has no such type, and a list if it is a set, as the `pk_set` of m2m_changed.
        """
        if len(self._parts) != 1 or self._parts[0][0] or self._parts[0][1] is None:
            return self.fill(arguments)
        value = self._resolve(self._parts[0][1], arguments)
        if isinstance(value, set | frozenset):
            return list(value)
        return value if value is None or isinstance(value, _JSON) else str(value)

    def _resolve(self, path: list[str], arguments: Arguments) -> Any:
        first, *attributes = path
        if first not in arguments:
            known = listing(arguments)
            raise InvalidMessage(f"{repr_of(self.text)} uses {repr_of(first)}; available: {known}")
        value = arguments[first]
        for name in attributes:
            try:
                value = getattr(value, name)
            except AttributeError as error:
                raise InvalidMessage(f"{repr_of(self.text)} cannot be filled: {error}") from error
        if callable(value):
            raise InvalidMessage(
                f"{repr_of('.'.join(path))} in {repr_of(self.text)} is a method or a class, which cannot be called"
            )
        return value


def filler(structure: Any) -> Callable[[Arguments], Any]:
    """Return a function that copies lists and dicts, and fills every text in them as a template.

    Raises:
        ConfigurationError: a text in it is not a template.
    """
    if isinstance(structure, str):
        return Template(structure).value
    if isinstance(structure, Mapping):
        by_key = {key: filler(item) for key, item in structure.items()}
        return lambda arguments: {key: fill(arguments) for key, fill in by_key.items()}
    if isinstance(structure, list | tuple):
        items = [filler(item) for item in structure]
        return lambda arguments: [fill(arguments) for fill in items]
    return lambda arguments: structure
