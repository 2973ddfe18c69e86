"""Receivers, connected to the signals of their senders."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.apps import apps
from django.db import connections
from django.db.models import Model
from django.db.models.signals import m2m_changed
from django.dispatch import Signal
from django.utils.module_loading import import_string

from mq_django.core.logs import get_logger
from mq_django.core.templates import Arguments
from mq_django.errors import ConfigurationError

logger = get_logger("mq_django.triggers")


@dataclass(frozen=True, slots=True)
class Receiver:
    """Does something when a signal fires."""

    act: Callable[[Arguments], None]
    #: For the log.
    name: str
    #: What fails breaks whoever sent the signal, instead of being logged.
    strict: bool

    def __call__(self, *, sender: Any, signal: Signal, **given: Any) -> None:
        """Do it, but not for what a fixture loads, and once for a change of many-to-many: when it is made."""
        if given.get("raw") or (signal is m2m_changed and not str(given.get("action")).startswith("post_")):
            return
        try:
            self.act({**given, "sender": sender, "signal": signal})
        except Exception:
            if self.strict:
                raise
            logger.exception("Trigger %s failed; %s was saved or sent all the same", self.name, _shown(sender))


def _shown(sender: Any) -> str:
    return str(getattr(sender, "__qualname__", type(sender).__qualname__))


class Link(NamedTuple):
    """A signal of some senders, and what receives it."""

    signal: Signal
    senders: Sequence[Any]
    receiver: Receiver
    #: Tells this link from others: it is made once, however often its module is imported.
    uid: str


@dataclass(frozen=True, slots=True)
class Trigger:
    """Links that belong together: what enqueues, and what cancels it."""

    links: Sequence[Link]

    def connect(self) -> None:
        """Connect every link, or none.

        Raises:
            ConfigurationError: a sender is no model of an installed app.
        """
        for link, sender in self.resolve():
            link.signal.connect(link.receiver, sender=sender, weak=False, dispatch_uid=link.uid)

    def disconnect(self) -> None:
        """Undo connect()."""
        for link, sender in self.resolve():
            link.signal.disconnect(sender=sender, dispatch_uid=link.uid)

    def resolve(self) -> list[tuple[Link, Any]]:
        """Return each link with each of its senders.

        Raises:
            ConfigurationError: a sender is no model of an installed app.
        """
        return [(link, sender) for link in self.links for given in link.senders for sender in expand(given)]


def expand(sender: Any) -> list[Any]:
    """Return everything that sends signals as `sender`.

    A model stands for itself and its proxies, because what is saved through a proxy is in the model's table;
    an abstract one for all that inherit from it. Any other sender stands for itself, and None for everybody.

    Raises:
        ConfigurationError: text that names no model of an installed app.
    """
    model = _find_model(sender) if isinstance(sender, str) else sender
    if not (isinstance(model, type) and issubclass(model, Model)):
        return [model]
    heirs = [other for other in apps.get_models(include_auto_created=True) if issubclass(other, model)]
    if model._meta.abstract:  # noqa: SLF001 - public in all but its name
        return heirs
    return [model, *(other for other in heirs if other is not model and other._meta.proxy)]  # noqa: SLF001


def _find_model(name: str) -> Any:
    """Return the model that "app.Model" or a dotted path names."""
    try:
        return apps.get_model(name) if name.count(".") == 1 else import_string(name)
    except (LookupError, ValueError, ImportError) as error:
        raise ConfigurationError(f"{name!r} names no model, as shop.Cart does: {error}") from error


def database(arguments: Arguments) -> str | None:
    """Return the alias of the database that a signal is about, or None."""
    using = arguments.get("using")
    if using is None:
        using = getattr(getattr(arguments.get("instance"), "_state", None), "db", None)
    return using if using in connections.settings else None
