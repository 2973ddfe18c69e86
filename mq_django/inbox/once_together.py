"""Run a handler for several messages in one transaction with their rows of the inbox."""

from collections.abc import Sequence

from mq_django.core.outcomes import ACK, Ack
from mq_django.inbox.identity import Identity
from mq_django.inbox.once import Once


class OnceTogether(Once):
    """One call of a handler with `@exactly_once` for several messages: all are handled in its transaction, or none.

    Args:
        using: the alias of the handler's database.
        identities: of the messages, in the first pass; at least one.
    """

    def __init__(self, using: str, identities: Sequence[Identity]) -> None:
        super().__init__(using, identities[0])
        self._all = identities

    def handled(self) -> set[Identity]:
        """Return the identities of those that were handled before in this pass, as they were given."""
        number = self.current_pass().number
        found = self._entries.handled([each._replace(number=number) for each in self._all])
        return {each for each in self._all if each._replace(number=number) in found}

    def _found(self) -> Ack | None:
        return ACK if len(self.handled()) == len(set(self._all)) else None

    def _add(self, identity: Identity) -> None:
        self._entries.add_all([each._replace(number=identity.number) for each in self._all])

    def _keep(self, identity: Identity, outcome: Ack) -> None:
        """Do nothing: the messages of a batch have no results."""
