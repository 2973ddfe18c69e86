"""What was measured on one node, as the tables and the model use it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from benchmarks.contenders import HANDLERS
from benchmarks.record import Record
from benchmarks.scaling.connections import on_node, on_server
from benchmarks.scaling.model import Costs
from benchmarks.scaling.node_costs import BULK, HANDLED, HANDLED_SLOWLY, HOT_KEY, ONE_BY_ONE, figure

#: The figures that the documentation shows. They change only when somebody renews them.
FILE = Path(__file__).with_name("inputs.json")
#: Figures of a run that are stored.
_STORED = re.compile("node: |connections: ")
_WHERE = ("date", "cores", "load before", "Python", "Redis")


class NotMeasured(KeyError):
    """A figure is not among the inputs; the message names it."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The figures of a run, by name."""

    where: Mapping[str, str]
    figures: Mapping[str, float]

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return what a run has measured, with four digits."""
        ours = record.medians()[HANDLERS.name]
        figures = {name: float(f"{value:.4g}") for name, value in ours.items() if _STORED.match(name)}
        return cls({name: record.machine[name] for name in _WHERE}, figures)

    @classmethod
    def load(cls, path: Path = FILE) -> Self:
        """Read what was stored."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def save(self, path: Path = FILE) -> None:
        """Store the figures."""
        text = json.dumps({"where": self.where, "figures": self.figures}, indent=1)
        path.write_text(f"{text}\n", encoding="utf-8")

    def __getitem__(self, name: str) -> float:
        """Return a figure.

        Raises NotMeasured.
        """
        try:
            return self.figures[name]
        except KeyError as error:
            raise NotMeasured(name) from error

    def has(self, name: str) -> bool:
        """Tell whether a figure was measured."""
        return name in self.figures

    def server_micros(self, kind: str, *, bulk: bool = False, slow: bool = False) -> float:
        """Return the microseconds of the server's core that a message costs: its publish, and all until it is settled.

        Args:
            kind: of `node_costs`.
            bulk: messages are published with calls of 1,000 each, not one by one.
            slow: handlers are slow, so that messages are fetched and settled in small batches.
        """
        publish = self[figure(kind, BULK if bulk else ONE_BY_ONE)]
        return publish + self[figure(kind, HANDLED_SLOWLY if slow else HANDLED)]

    def costs(self, kind: str, *, bulk: bool = False, slow: bool = False, handler: float | None = None) -> Costs:
        """Return the costs of a message.

        Args:
            kind: of `node_costs`.
            bulk, slow: as for `server_micros()`.
            handler: seconds that a handler of a queue with order runs; None: the queue has no order.
        """
        gap = None if handler is None else 1 / self[HOT_KEY]
        return Costs(self.server_micros(kind, bulk=bulk, slow=slow), handler or 0.0, gap)

    def connections(self, processes: int, queues: int) -> tuple[int, int]:
        """Return the connections of a tree to a server, and to the node of a cluster that has the most."""
        return round(self[on_server(processes, queues)]), round(self[on_node(processes, queues)])
