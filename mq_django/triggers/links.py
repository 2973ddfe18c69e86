"""Connect the receivers of triggers to signals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.apps import apps
from django.db import connections
from django.db.models import Model
from django.db.models.signals import m2m_changed
from django.dispatch import Signal
from django.utils.module_loading import import_string

from mq_django.core.exceptions import class_name, repr_of
from mq_django.core.logs import get_logger
from mq_django.core.templates import Arguments
from mq_django.errors import ConfigurationError

logger = get_logger("mq_django.triggers")


@dataclass(frozen=True, slots=True)
class Receiver:
    """Runs the action of a trigger when a signal is sent."""

    act: Callable[[Arguments], None]
    #: The name in logs.
    name: str
    #: Errors are raised to the sender of the signal, instead of being logged.
    strict: bool

    def __call__(self, *, sender: Any, signal: Signal, **given: Any) -> None:
        """Run the action, except for fixtures, and for m2m_changed only after the change."""
        if given.get("raw") or (signal is m2m_changed and not str(given.get("action")).startswith("post_")):
            return
        try:
            self.act({**given, "sender": sender, "signal": signal})
        except Exception:
            if self.strict:
                raise
            logger.exception("Trigger %s failed; the change to %s is not affected", self.name, _shown(sender))


def _shown(sender: Any) -> str:
    return str(getattr(sender, "__qualname__", class_name(type(sender))))


class Link(NamedTuple):
    """A signal, its senders, and the receiver."""

    signal: Signal
    senders: Sequence[Any]
    receiver: Receiver
    #: The dispatch_uid: the link is connected only once, even if its module is imported again.
    uid: str


@dataclass(frozen=True, slots=True)
class Trigger:
    """The links of one trigger: those that enqueue, and those that cancel."""

    links: Sequence[Link]

    def connect(self) -> None:
        """Connect all links or none.

        Raises:
            ConfigurationError: a sender is not a model of an installed app.
        """
        for link, sender in self.resolve():
            link.signal.connect(link.receiver, sender=sender, weak=False, dispatch_uid=link.uid)

    def disconnect(self) -> None:
        """Undo connect()."""
        for link, sender in self.resolve():
            link.signal.disconnect(sender=sender, dispatch_uid=link.uid)

    def resolve(self) -> list[tuple[Link, Any]]:
        """Return each link once for each of its senders.

        Raises:
            ConfigurationError: a sender is not a model of an installed app.
        """
        return [(link, sender) for link in self.links for given in link.senders for sender in expand(given)]


def expand(sender: Any) -> list[Any]:
    """Return all senders of signals for `sender`.

    For a model, these are itself and its proxies, because a proxy saves to the model's table. For an abstract model,
    these are its subclasses. Any other sender is returned as it is. None means any sender.

    Raises:
        ConfigurationError: a text that does not name a model of an installed app.
    """
    model = _find_model(sender) if isinstance(sender, str) else sender
    if not (isinstance(model, type) and issubclass(model, Model)):
        return [model]
    subclasses = [other for other in apps.get_models(include_auto_created=True) if issubclass(other, model)]
    if model._meta.abstract:  # noqa: SLF001 - public in all but its name
        return subclasses
    return [model, *(other for other in subclasses if other is not model and other._meta.proxy)]  # noqa: SLF001


def _find_model(name: str) -> Any:
    """Return the model with this "app.Model" or dotted path."""
    try:
        return apps.get_model(name) if name.count(".") == 1 else import_string(name)
    except (LookupError, ValueError, ImportError) as error:
        raise ConfigurationError(f"{repr_of(name)} is not a model, such as shop.Cart: {error}") from error


def database(arguments: Arguments) -> str | None:
    """Return the alias of the database of a signal's change, or None."""
    using = arguments.get("using")
    if using is None:
        using = getattr(getattr(arguments.get("instance"), "_state", None), "db", None)
    return using if using in connections.settings else None
