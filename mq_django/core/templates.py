"""Text with places such as `{instance.pk}`, filled by attribute look-ups and nothing else."""

import re
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

from mq_django.errors import ConfigurationError, InvalidMessage

#: Attributes by name: no private ones (they lead to a class, and from there anywhere), no items, no calls.
_PLACE = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*", re.ASCII)
_JSON = (bool, int, float, str, list, dict)

Arguments = Mapping[str, Any]


class Template:
    """A text whose places are filled from arguments.

    Raises:
        ConfigurationError: a place asks for more than attributes.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        #: Pairs of the text before a place and the path of the place; None when the text ends without one.
        self._parts: list[tuple[str, list[str] | None]] = []
        try:
            parsed = list(Formatter().parse(text))
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{text!r:.200} is not a template: {error}") from error
        for before, place, form, conversion in parsed:
            if form or conversion or (place is not None and not _PLACE.fullmatch(place)):
                raise ConfigurationError(
                    f"{text!r:.200} is not a template: places are names and attributes, as {{instance.pk}}"
                )
            self._parts.append((before, None if place is None else place.split(".")))

    def fill(self, arguments: Arguments) -> str:
        """Return the text with every place filled.

        Raises:
            InvalidMessage: a place has no value: it is missing, None, or a method.
        """
        filled = ""
        for before, path in self._parts:
            filled += before
            if path is not None:
                value = self._look_up(path, arguments)
                if value is None:
                    raise InvalidMessage(f"{'.'.join(path)!r} in {self.text!r} is None")
                filled += str(value)
        return filled

    def value(self, arguments: Arguments) -> Any:
        """Return the value of a template that is one place, as text when JSON has no such type."""
        if len(self._parts) != 1 or self._parts[0][0] or self._parts[0][1] is None:
            return self.fill(arguments)
        value = self._look_up(self._parts[0][1], arguments)
        return value if value is None or isinstance(value, _JSON) else str(value)

    def _look_up(self, path: list[str], arguments: Arguments) -> Any:
        first, *attributes = path
        if first not in arguments:
            known = ", ".join(sorted(arguments))
            raise InvalidMessage(f"{self.text!r} asks for {first!r}; there is: {known}")
        value = arguments[first]
        for name in attributes:
            try:
                value = getattr(value, name)
            except AttributeError as error:
                raise InvalidMessage(f"{self.text!r} cannot be filled: {error}") from error
        if callable(value):
            raise InvalidMessage(f"{'.'.join(path)!r} in {self.text!r} is a method or a class: nothing is called")
        return value


def filler(structure: Any) -> Callable[[Arguments], Any]:
    """Return what makes a copy of lists and dicts in which every text is a filled template.

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
