"""The keys of workflows. No other module builds one."""

from dataclasses import dataclass

#: Prefix of the ids of messages that are steps of workflows: `w:<run>.<step>.<round>`. No other id starts with it.
STEP_PREFIX = "w:"
#: Prefix of the ids of messages that are callbacks of runs: `w-<run>.<kind>.<round>`.
CALLBACK_PREFIX = "w-"
#: The first character of a run's id names its home: the keys of all runs of a home are in one hash slot. On one server
#: one home is enough.
HOMES = "0"


@dataclass(frozen=True, slots=True)
class WorkflowKeys:
    """The keys of one home of workflows."""

    namespace: str
    #: One of HOMES.
    home: str

    def _key(self, kind: str) -> str:
        return f"{self.namespace}:{{workflows.{self.home}}}:{kind}"

    @property
    def starts(self) -> str:
        """STREAM: steps and callbacks that are to be published."""
        return self._key("starts")

    @property
    def alive(self) -> str:
        """ZSET, score when it expires in ms: runs that have not ended."""
        return self._key("alive")

    @property
    def index(self) -> str:
        """ZSET, score when it was started in ms: all runs."""
        return self._key("index")

    @property
    def unique(self) -> str:
        """HASH: unique key -> the run that has it, until that has ended."""
        return self._key("unique")

    @property
    def busy(self) -> str:
        """ZSET, score when it was left in ms: runs of which only a part of the changes is made."""
        return self._key("busy")

    @property
    def checked(self) -> str:
        """STRING with a TTL: while it exists, no other supervisor checks the runs."""
        return self._key("checked")

    def run(self, run_id: str) -> str:
        """HASH: the state of a run, its counts, times and callbacks."""
        return self._key(f"run:{run_id}")

    def steps(self, run_id: str) -> str:
        """HASH: number of a step -> its record, see `lua/parts/flow_steps.lua`."""
        return self._key(f"steps:{run_id}")

    def bodies(self, run_id: str) -> str:
        """HASH: number of a step -> what is published to start it."""
        return self._key(f"bodies:{run_id}")

    def after(self, run_id: str) -> str:
        """HASH: number of a step -> ranges of the steps that wait for it."""
        return self._key(f"after:{run_id}")

    def values(self, run_id: str) -> str:
        """HASH: number of a step -> the JSON text of the value that it has returned."""
        return self._key(f"values:{run_id}")

    def work(self, run_id: str) -> str:
        """LIST: changes that are still to be made."""
        return self._key(f"work:{run_id}")

    def held(self, run_id: str) -> str:
        """LIST: steps that start when the run continues."""
        return self._key(f"held:{run_id}")

    def of_run(self, run_id: str) -> tuple[str, ...]:
        """Return the keys that only one run has."""
        kinds = (self.run, self.steps, self.bodies, self.after, self.values, self.work, self.held)
        return tuple(kind(run_id) for kind in kinds)

    def all(self, run_id: str) -> tuple[str, ...]:
        """Return the keys that a change of a run needs, in the order of the script."""
        return (*self.of_run(run_id), self.starts, self.alive, self.index, self.unique, self.busy)
