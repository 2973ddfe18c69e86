"""Workflows: tasks that belong together."""

from mq_django.producers.run_failures import RunFailure
from mq_django.producers.workflow_run import Run, RunProgress, get_run
from mq_django.workflows.current import current_flow
from mq_django.workflows.definitions import Workflow, workflow
from mq_django.workflows.flow import Flow, Step, Steps
from mq_django.workflows.shapes import chain, parallel

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
