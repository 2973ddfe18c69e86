"""Workflows of common shapes: one task after another, and tasks at the same time."""

from collections.abc import Sequence
from typing import Any

from mq_django.core.exceptions import repr_of
from mq_django.errors import InvalidWorkflow
from mq_django.task_backend.compat import Task
from mq_django.workflows.definitions import Workflow
from mq_django.workflows.flow import Flow, Step, Steps


class Shape(Workflow):
    """A workflow whose members are tasks, tuples of a task and its arguments, or other workflows."""

    def __init__(self, name: str, members: Sequence[Any]) -> None:
        if not members:
            raise InvalidWorkflow(f"{name}() needs at least one task")
        super().__init__(name)
        self._members = [_member(name, member) for member in members]

    def __enter__(self) -> Flow:
        raise InvalidWorkflow(f"{self.name}() cannot be used in a with statement: it has steps already")


class Chain(Shape):
    """Tasks that run one after another."""

    def _compose(self, flow: Flow, /, *given: Any, **kwargs: Any) -> Any:
        """Add the steps to a flow, and return the last one. The first gets `given` and `kwargs` as well."""
        last, before = None, range(0)
        for number, (what, args) in enumerate(self._members):
            begin = len(flow) + 1
            if number == 0:
                last = flow.add(what, *given, *args, **kwargs)
            else:
                last = flow.add(what, *([last] if last is not None else []), *args)
            # A workflow need not return its steps, nor use the value of the member before it.
            added = range(begin, len(flow) + 1)
            flow._order(before, added)  # noqa: SLF001 - shapes are a part of flows
            before = added or before
        return last


class Parallel(Shape):
    """Tasks that run at the same time."""

    def _compose(self, flow: Flow, /, *given: Any, **kwargs: Any) -> Steps:
        """Add the steps to a flow, and return them. Each gets `given` and `kwargs` as well."""
        ends: list[Step] = []
        for what, args in self._members:
            end = flow.add(what, *given, *args, **kwargs)
            ends += [end] if isinstance(end, Step) else _list(end)
        return Steps(flow, ends)


def chain(*members: Any) -> Workflow:
    """Return a workflow that runs tasks one after another. Each gets the value of the one before as first argument.

        chain((fetch, "a.csv"), parse, parallel(store, announce)).start()

    Args:
        members: tasks, tuples of a task and its further arguments, or other workflows.

    Returns:
        A workflow, which can be started many times, and be a member of others.

    Raises:
        InvalidWorkflow: there is no member, or one is neither.
    """
    return Chain("chain", members)


def parallel(*members: Any) -> Workflow:
    """Return a workflow that runs tasks at the same time. In a chain the next task gets the list of their values.

        chain(parallel((count, "a.csv"), (count, "b.csv")), total).start()

    Args:
        members: tasks, tuples of a task and its arguments, or other workflows.

    Returns:
        A workflow, which can be started many times, and be a member of others.

    Raises:
        InvalidWorkflow: there is no member, or one is neither.
    """
    return Parallel("parallel", members)


def _list(returned: Any) -> list[Step]:
    ends = [] if returned is None else list(returned) if isinstance(returned, Sequence) else [returned]
    for end in ends:
        if not isinstance(end, Step):
            raise InvalidWorkflow(
                f"A workflow in parallel() must return its last step, or a list of steps, not {repr_of(end)}"
            )
    return ends


def _member(name: str, member: Any) -> tuple[Any, Sequence[Any]]:
    what, args = (member[0], member[1:]) if isinstance(member, tuple) and member else (member, ())
    if not isinstance(what, Task | Workflow):
        raise InvalidWorkflow(
            f"A member of {name}() is a task, (task, *arguments) or a workflow, not {repr_of(member)}"
        )
    return what, args
