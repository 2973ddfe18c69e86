"""Add steps to the run of the step that runs now."""

from functools import partial

from mq_django.core.running_steps import running_step
from mq_django.errors import WorkflowError
from mq_django.workflows.flow import Flow


def current_flow() -> Flow:
    """Return a flow for steps that the running step adds to its run.

    They are added when the running step succeeds, and not when it fails. They start after it.

        @task
        def split(path):
            flow = current_flow()
            flow.add(merge, flow.map(import_part, chunks(path)))

    Raises:
        WorkflowError: no step of a workflow runs here.
    """
    running = running_step.get()
    if running is None:
        raise WorkflowError("current_flow() is for tasks that run as a step of a workflow")
    if not isinstance(running.flow, Flow):
        running.flow = flow = Flow()
        running.records = partial(flow._records, running.run_id)  # noqa: SLF001 - how a flow is written is no part of its API
    return running.flow
