"""The definition of a run of a workflow: its steps, their arguments, and what they wait for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, Self, overload

from mq_django.conf import get_config
from mq_django.core.flow_graph import MAX_STEPS, FlowGraph, StepRecord, ranges, values_taken
from mq_django.core.ids import STEP_NAME, message_id_of
from mq_django.core.jsontext import dumps
from mq_django.core.publication import publication
from mq_django.core.publish_checks import check_headers, check_supported
from mq_django.core.running_handler import running_step
from mq_django.core.texts import repr_of
from mq_django.errors import InvalidWorkflow, MQError, WorkflowError
from mq_django.middleware import PublishCall, publishing_chain
from mq_django.producers.queues import queues
from mq_django.task_backend.backend import TaskBackend
from mq_django.task_backend.compat import AnyTask, Task
from mq_django.task_backend.task_options import DEFAULT, Publishing, arguments_of

# What is kept of a step or a callback of a run until it is published.


def check_task(task: object) -> None:
    """Check that a task can be a step, or a callback.

    Raises:
        InvalidWorkflow: it is no task of mq_django, or it has a unique key or an expiry.
    """
    if not isinstance(task, Task) or not isinstance(task.get_backend(), TaskBackend):
        raise InvalidWorkflow(
            f"{repr_of(task, 200)} is not a task of mq_django: use @mq_django.task, or MQBackend in TASKS"
        )
    options: Publishing = getattr(task, "publishing", DEFAULT)
    if any(value is not None for value in (options.unique, options.unique_for, options.at_most)):
        raise InvalidWorkflow(f"Task {task.module_path} has a unique key or at_most=: give unique= to start() instead")
    if options.expires is not None:
        raise InvalidWorkflow(f"Task {task.module_path} expires: give expires= to the workflow instead")


def check_queue(task: AnyTask) -> None:
    """Check that the queue of a task is in the settings, and can have steps.

    Raises:
        InvalidWorkflow: it is not, or it is in RSMQ's format.
        ConfigurationError: the settings cannot be used.
    """
    config = get_config()
    try:
        check_supported(config.queue(task.queue_name), "step")
    except MQError as error:
        raise InvalidWorkflow(f"Task {task.module_path} cannot be a step: {error}") from error


def headers_of(task: AnyTask, message_id: str) -> Mapping[str, str]:
    """Return the headers that middleware adds to what is published here and now, for all steps that are defined here.

    A step is published later, by another process, in which middleware knows nothing of this one's request.

    Args:
        task: the task of the first of these steps.
        message_id: the id that its message will have.
    """
    middleware = publishing_chain()
    if middleware is None:
        return {}
    config = queues[task.queue_name].config
    message = publication(config, task.module_path, None).message._replace(id=message_id)
    headers: dict[str, str] = {}

    def take_headers(call: PublishCall) -> Sequence[str | None]:
        headers.update(check_headers(call.headers))
        return [message_id]

    middleware(PublishCall(config.name, [message], take_headers))
    return headers


def body_of(task: AnyTask, name: str, data: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
    """Return what is kept of a step or callback until it is published.

    Raises:
        InvalidWorkflow: it cannot be published.
    """
    options: Publishing = getattr(task, "publishing", DEFAULT)
    body: dict[str, Any] = {"queue": task.queue_name, "name": name, "data": data}
    if headers := {**headers, **options.all_headers}:
        body["headers"] = headers
    if task.priority:
        body["priority"] = task.priority
    if options.key is not None:
        body["key"] = options.key
    if options.delay is not None:
        body["delay"] = options.delay if isinstance(options.delay, int | float) else options.delay.total_seconds()
    if task.run_after is not None:
        body["due"] = task.run_after.isoformat()
    try:
        config = queues[task.queue_name].config
        publication(config, name, data, key=options.key, priority=task.priority, headers=headers)
    except MQError as error:
        raise InvalidWorkflow(f"Task {task.module_path} cannot be a step: {error}") from error
    return dumps(body)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step of a flow. As an argument of another step it stands for the value that its task returns."""

    flow: "Flow" = field(repr=False)
    number: int

    def after(self, *others: "Step | Steps | Iterable[Step]") -> Self:
        """Let the step start only after others have succeeded, and return it.

        Args:
            others: steps of the same flow, or lists of them.

        Raises:
            InvalidWorkflow: one is not a step of the same flow.
        """
        self.flow._wait([self], others)  # noqa: SLF001 - a step is a part of its flow
        return self


class Steps(Sequence[Step]):
    """Several steps of a flow. As an argument of another step they stand for the list of their values."""

    def __init__(self, flow: "Flow", steps: Sequence[Step]) -> None:
        self.flow = flow
        self._steps = steps

    @overload
    def __getitem__(self, index: int) -> Step: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Step]: ...

    def __getitem__(self, index: int | slice) -> Step | Sequence[Step]:
        return self._steps[index]

    def __len__(self) -> int:
        return len(self._steps)

    def after(self, *others: "Step | Steps | Iterable[Step]") -> Self:
        """Let each of the steps start only after others have succeeded, and return them.

        Args:
            others: steps of the same flow, or lists of them.

        Raises:
            InvalidWorkflow: one is not a step of the same flow.
        """
        self.flow._wait(self._steps, others)  # noqa: SLF001 - a step is a part of its flow
        return self


class Part(Protocol):
    """What adds steps to a flow: a workflow, `chain()` or `parallel()`."""

    def build(self, flow: "Flow", /, *args: Any, **kwargs: Any) -> Any:
        """Add steps to a flow, and return what stands for their values.

        Args:
            flow: the flow.
            args, kwargs: what was given to `Flow.add()`.
        """


class Planned(NamedTuple):
    """A step before it is written."""

    task: AnyTask
    arguments: Mapping[str, Any]
    #: Argument -> the step or steps whose values it gets: a number, or ranges.
    references: Mapping[str, int | str]


class Flow:
    """Collects the steps of one run. `workflow` passes it to the function that it decorates."""

    def __init__(self) -> None:
        self._graph = FlowGraph()
        self._planned: list[Planned] = []
        #: The steps whose values another step gets.
        self._named: set[int] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._planned)

    def add(self, what: AnyTask | Part, /, *args: Any, **kwargs: Any) -> Any:
        """Add a step that calls a task, or the steps of another workflow.

        Args:
            what: a task of `mq_django.task` or of MQBackend, also after `using()`; or a workflow, `chain()` or
                `parallel()`.
            args, kwargs: the arguments: JSON values, or steps of this flow, or lists of steps. A step waits for those
                in its arguments, and gets their values.

        Returns:
            The step. For a workflow what its function returns; for `chain()` the last step, for `parallel()` the list.

        Raises:
            InvalidWorkflow: this cannot be a step, or an argument is a step of another flow.
            InvalidArguments: the task cannot be called with these arguments, or one cannot be encoded as JSON.
        """
        if isinstance(what, Task) or not hasattr(what, "build"):
            return self._add(what, args, kwargs)
        return what.build(self, *args, **kwargs)

    def map(self, what: AnyTask | Part, items: Iterable[Any], /, **kwargs: Any) -> Steps:
        """Add a step for each item, which is the task's only positional argument.

        Args:
            what: see add().
            items: JSON values or steps.
            kwargs: further arguments of every step.

        Returns:
            The steps, in the order of the items.

        Raises:
            InvalidWorkflow, InvalidArguments: see add().
        """
        if not isinstance(items, Iterable):
            raise InvalidWorkflow(f"map() needs a list of items, not {repr_of(items)}")
        steps = [self.add(what, item, **kwargs) for item in items]
        if not all(_is_step(step) for step in steps):
            raise InvalidWorkflow(f"map() needs a task, or a workflow that returns one step, not {repr_of(what, 200)}")
        return Steps(self, steps)

    def _add(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Step:
        self._check_open()
        check_task(task)
        check_queue(task)
        if len(self._planned) >= MAX_STEPS:
            raise InvalidWorkflow(f"A workflow has at most {MAX_STEPS} steps")
        references: dict[str, int | str] = {}
        before: set[int] = set()
        plain_args = [self._plain(str(index), value, references, before) for index, value in enumerate(args)]
        plain_kwargs = {name: self._plain(name, value, references, before) for name, value in kwargs.items()}
        try:
            values_taken(references)
        except ValueError as error:
            raise InvalidWorkflow(f"A step takes at most {MAX_STEPS} values of other steps") from error
        arguments = arguments_of(task, plain_args, plain_kwargs)
        number = self._graph.add()
        self._planned.append(Planned(task, arguments, references))
        self._graph.wait(number, before)
        self._named |= before
        return Step(self, number)

    def _plain(self, name: str, value: Any, references: dict[str, int | str], before: set[int]) -> Any:
        """Return an argument, or None in the place of steps, which are noted."""
        if isinstance(value, Step):
            self._check_own([value])
            references[name] = value.number
            before.add(value.number)
            return None
        is_list = isinstance(value, Steps) or (isinstance(value, list | tuple) and any(_is_step(one) for one in value))
        if not is_list:
            return value
        if not all(_is_step(one) for one in value):
            raise InvalidWorkflow(f"Argument {name} has steps and other values in one list: give it only steps")
        self._check_own(value)
        numbers = [step.number for step in value]
        # Ranges sort; another order, or a step twice, is written number by number.
        references[name] = ranges(numbers) if numbers == sorted(set(numbers)) else ",".join(map(str, numbers))
        before.update(numbers)
        return None

    def _wait(self, steps: Iterable[Step], others: Iterable[Any]) -> None:
        """Let steps start after others; see Step.after()."""
        self._check_open()
        found: list[Any] = []
        for other in others:
            found += list(other) if isinstance(other, Iterable) else [other]
        self._check_own(found)
        for step in steps:
            self._graph.wait(step.number, [other.number for other in found])

    def _order(self, first: range, then: range) -> None:
        """Let the steps of one range of numbers start after another range."""
        self._graph.order(first, then)

    def _close(self) -> None:
        """Refuse further steps, because the run is started."""
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidWorkflow("The run of this flow is started: add steps before, or in a step with current_flow()")

    def _check_own(self, steps: Iterable[Any]) -> None:
        for step in steps:
            if not isinstance(step, Step) or step.flow is not self:
                raise InvalidWorkflow(f"{repr_of(step)} is not a step of this flow")

    def _records(self, run_id: str, first: int = 1) -> list[StepRecord]:
        """Return what is written for the steps of a run. The first has the number `first`.

        Raises:
            InvalidWorkflow: steps wait for each other, or one cannot be published.
        """
        if cycle := self._graph.cycle():
            names = ", ".join(f"{number} ({self._planned[number - 1].task.module_path})" for number in cycle[:5])
            raise InvalidWorkflow(f"These steps wait for each other, or for such steps: {names}")
        shift = first - 1
        headers = headers_of(self._planned[0].task, message_id_of(run_id, first, 1)) if self._planned else {}
        bodies = [self._body(number, planned, shift, headers) for number, planned in enumerate(self._planned, 1)]
        return self._graph.records(bodies, first=first)

    def _body(self, number: int, planned: Planned, shift: int, headers: Mapping[str, str]) -> bytes:
        data: dict[str, Any] = dict(planned.arguments)
        if planned.references:
            data["references"] = {name: _shifted(which, shift) for name, which in planned.references.items()}
        if number in self._named:
            data["keep"] = True
        return body_of(planned.task, STEP_NAME + planned.task.module_path, data, headers)

    def __iter__(self) -> Iterator[Step]:
        return (Step(self, number) for number in range(1, len(self) + 1))


def _is_step(value: object) -> bool:
    return isinstance(value, Step)


def _shifted(which: int | str, shift: int) -> int | str:
    if isinstance(which, int):
        return which + shift
    parts = (part.split("-") for part in which.split(",")) if which else ()
    return ",".join("-".join(str(int(number) + shift) for number in part) for part in parts)


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
