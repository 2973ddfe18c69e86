"""Workflows: tasks that belong together.

A `@workflow` function describes its steps with a `Flow`: which tasks, with which arguments, and which of them wait
for which. `start()` writes all this into Redis as one run; `chain()` and `parallel()` are workflows of common
shapes.

    the function -> flow.Flow -> stores/workflow_home: steps, what they wait for, what may start
                                   ^ notes of queues: a step has ended     | publishes the next ones

Steps are ordinary messages of any queues, with all that these have: retries, dead letters, limits, priorities. Their
ends and the state of the run are in different slots, so they exchange notes, each of which may arrive twice and in
any order (docs/architecture.md).

`producers/` advances runs, without this package: it knows only what the run says in Redis. `definitions` also finds
what other programs or a failover have taken from runs.
"""

from mq_django.producers.workflow_run import Run, RunProgress, get_run
from mq_django.producers.workflow_steps import RunFailure
from mq_django.workflows.definitions import Workflow, chain, parallel, workflow
from mq_django.workflows.flow import Flow, Step, Steps, current_flow

__all__ = [
    "Flow",
    "Run",
    "RunFailure",
    "RunProgress",
    "Step",
    "Steps",
    "Workflow",
    "chain",
    "current_flow",
    "get_run",
    "parallel",
    "workflow",
]
