"""Workflows that can be started."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, signature
from types import TracebackType
from typing import Any, overload

from mq_django.core.clock import Duration, read_duration
from mq_django.core.ids import message_id_of, new_run_id
from mq_django.core.texts import class_name, repr_of
from mq_django.errors import InvalidArguments, InvalidWorkflow
from mq_django.producers.asynchronous import asynchronous
from mq_django.producers.sinks import after_commit
from mq_django.producers.workflow_run import PendingRun, Run
from mq_django.producers.workflow_steps import FAILURE
from mq_django.registry import note_composed
from mq_django.task_backend.compat import AnyTask, Task
from mq_django.task_backend.task_options import check_call
from mq_django.transport.scripts import Argument
from mq_django.workflows.flow import Flow, Step, Steps, body_of, check_queue, check_task, headers_of

#: What happens to the other steps when one has failed.
POLICIES = ("stop", "continue")
#: How long a run may take.
EXPIRES = timedelta(days=30)
CALLBACKS = ("success", "failure", "finish")
MAX_NAME = 255

Function = Callable[..., Any]


class Workflow:
    """A workflow. See `workflow()`."""

    def __init__(
        self,
        name: str,
        function: Function | None = None,
        *,
        policy: str = "stop",
        expires: Duration = EXPIRES,
        callbacks: Mapping[str, AnyTask | None] | None = None,
    ) -> None:
        self.name = _text("The name of a workflow", name)
        self._function = function
        self._fields: dict[str, Argument] = {"name": self.name, "policy": _policy(policy), "lasts": _lasts(expires)}
        self._callbacks = {kind: task for kind, task in (callbacks or {}).items() if task is not None}
        for kind, task in self._callbacks.items():
            _check_callback(kind, task)
        self._flow: Flow | None = None
        #: After a `with` block: the run that it has started.
        self.run: Run | None = None
        note_composed(self, self.name, Workflow._check_settings)

    def __repr__(self) -> str:
        return f"<{class_name(type(self))} {self.name}>"

    def _check_settings(self) -> None:
        """Check that the queues of its tasks can have steps, as far as tasks are known before it is started.

        Raises:
            InvalidWorkflow: one is not in the settings, or is in RSMQ's format.
            ConfigurationError: the settings cannot be used.
        """
        for task in self._tasks():
            check_queue(task)

    def _tasks(self) -> Iterable[AnyTask]:
        return self._callbacks.values()

    def build(self, flow: Flow, /, *args: Any, **kwargs: Any) -> Any:
        """Add the steps to the flow of another workflow, and return what the function returns.

        The run's `policy` and `expires` are used, and not its own.

        Args:
            flow: where the steps are added. `Flow.add()` calls this.
            args, kwargs: arguments of the workflow's function, or of the first task of a chain.

        Raises:
            InvalidWorkflow: it has callbacks, which only a whole run can have.
            InvalidArguments: the function does not take these arguments.
        """
        if self._callbacks:
            raise InvalidWorkflow(f"Workflow {self.name!r} has callbacks: it cannot be a part of another workflow")
        return self._compose(flow, *args, **kwargs)

    def _compose(self, flow: Flow, /, *args: Any, **kwargs: Any) -> Any:
        if self._function is None:
            raise InvalidWorkflow(f"Workflow {self.name!r} has no function")
        try:
            signature(self._function).bind(flow, *args, **kwargs)
        except TypeError as error:
            raise InvalidArguments(f"Workflow {self.name!r} cannot be called with these arguments: {error}") from error
        return self._function(flow, *args, **kwargs)

    def start(
        self, *args: Any, unique: str | None = None, using: str | None = None, on_commit: bool = True, **kwargs: Any
    ) -> Run:
        """Start a run: now, or inside `atomic()` when that commits.

        Args:
            args, kwargs: arguments of the workflow's function, or of the first task of a chain.
            unique: while a run of this workflow with the same key has not ended, no other one is started.
            using: the alias of the database whose transaction it waits for; None: the default one.
            on_commit: False starts it at once also inside a transaction.

        Returns:
            The run; with `unique` the one that has the key.

        Raises:
            InvalidWorkflow: it has no steps, steps wait for each other, or one of them cannot be published.
            InvalidArguments: a task, or the function of the workflow, does not take its arguments.
            InvalidMessage: `using` or `on_commit` cannot be used.
            ConfigurationError, NoServer, ConnectionLost, StoreError: from Redis, so inside `atomic()` from the commit.
        """
        flow = Flow()
        self._compose(flow, *args, **kwargs)
        return self._start(flow, unique=unique, using=using, on_commit=on_commit)

    astart = asynchronous(start)

    def _start(self, flow: Flow, *, unique: str | None, using: str | None, on_commit: bool) -> Run:
        self._check_settings()
        if not len(flow):
            raise InvalidWorkflow(f"Workflow {self.name!r} has no steps")
        key = None if unique is None else f"{self.name}:{_text('unique', unique)}"
        run = Run(new_run_id(unique=key), name=self.name)
        records = flow._records(run.id)  # noqa: SLF001 - how a flow is written is no part of its API
        flow._close()  # noqa: SLF001 - as above
        fields = dict(self._fields, next=len(records))
        if key is not None:
            fields["unique"] = key
        for kind, task in self._callbacks.items():
            headers = headers_of(task, message_id_of(run.id, kind, 1))
            data = {"args": [run.id], "kwargs": {FAILURE: None} if _accepts_failure(task) else {}}
            fields[f"on_{kind}"] = body_of(task, task.module_path, data, headers)

        after_commit(PendingRun(run, fields, records), using=using, on_commit=on_commit)
        return run

    def __enter__(self) -> Flow:
        if self._function is not None or self._flow is not None:
            raise InvalidWorkflow(f"Workflow {self.name!r} cannot be used in a with statement: it has steps already")
        self._flow = Flow()
        return self._flow

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        flow, self._flow = self._flow, None
        if kind is None and flow is not None:
            self.run = self._start(flow, unique=None, using=None, on_commit=True)


@overload
def workflow(target: Function, /) -> Workflow: ...


@overload
def workflow(
    target: str,
    /,
    *,
    on_success: AnyTask | None = ...,
    on_failure: AnyTask | None = ...,
    on_finish: AnyTask | None = ...,
    policy: str = ...,
    expires: Duration = ...,
) -> Workflow: ...


@overload
def workflow(
    *,
    on_success: AnyTask | None = ...,
    on_failure: AnyTask | None = ...,
    on_finish: AnyTask | None = ...,
    policy: str = ...,
    expires: Duration = ...,
) -> Callable[[Function], Workflow]: ...


def workflow(
    target: Function | str | None = None,
    /,
    *,
    on_success: AnyTask | None = None,
    on_failure: AnyTask | None = None,
    on_finish: AnyTask | None = None,
    policy: str = "stop",
    expires: Duration = EXPIRES,
) -> Any:
    """Make a function the definition of a workflow, or with a name define one in a `with` block.

        @workflow(on_failure=alert)
        def import_file(flow, path):
            parts = flow.map(import_part, range(10))
            flow.add(merge, parts)

        import_file.start("a.csv")

        with workflow("once") as flow:
            flow.add(b, flow.add(a, 1))

    Args:
        target: the function, which gets a `Flow` as its first argument; or a name for a `with` block.
        on_success, on_failure, on_finish: tasks that are enqueued when a run has succeeded, has failed or expired, and
            in any case. Their argument is the run's id, and `failure` if they have it: see `Run.failure`, as a dict.
        policy: when a step has failed, "stop": no further step starts; or "continue": all steps run that do not wait
            for it.
        expires: how long a run may take, in seconds or as a timedelta; after that it ends as expired.

    Returns:
        A `Workflow`, or without a target a decorator.

    Raises:
        InvalidWorkflow: an option cannot be used.
    """
    callbacks = {"success": on_success, "failure": on_failure, "finish": on_finish}

    def decorate(function: Function) -> Workflow:
        _check_function(function)
        name = f"{function.__module__}.{function.__qualname__}"
        return Workflow(name, function, policy=policy, expires=expires, callbacks=callbacks)

    if target is None:
        return decorate
    if callable(target):
        return decorate(target)
    return Workflow(target, policy=policy, expires=expires, callbacks=callbacks)


def _text(what: str, value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME or not value.isprintable():
        raise InvalidWorkflow(f"{what} must be 1 to {MAX_NAME} printable characters, not {repr_of(value, 300)}")
    return value


def _policy(value: object) -> str:
    if value not in POLICIES:
        raise InvalidWorkflow(f'policy must be "stop" or "continue", not {repr_of(value)}')
    return str(value)


def _lasts(value: object) -> int:
    try:
        found = read_duration(value)
    except TypeError as error:
        raise InvalidWorkflow(f"expires must be {error}, not {repr_of(value)}") from error
    if not timedelta(0) < found <= timedelta(days=3660):
        raise InvalidWorkflow(f"expires must be above zero, and at most 3660 days, not {repr_of(value)}")
    return round(found.total_seconds() * 1000)


def _check_function(function: Function) -> None:
    others = any(is_other(function) for is_other in (iscoroutinefunction, isgeneratorfunction, isasyncgenfunction))
    # A task or a functools.partial has no name.
    if others or not hasattr(function, "__qualname__"):
        raise InvalidWorkflow(
            f"{repr_of(function, 200)} must be a plain function, which returns when its steps are added"
        )


def _accepts_failure(task: AnyTask) -> bool:
    try:
        check_call(task, [None], {FAILURE: None})
    except TypeError:
        return False
    return True


def _check_callback(kind: str, task: AnyTask) -> None:
    check_task(task)
    if _accepts_failure(task):
        return
    try:
        check_call(task, [None], {})
    except TypeError as error:
        raise InvalidWorkflow(f"on_{kind}={task.module_path} must take one argument, the run's id: {error}") from error


__all__ = ["CALLBACKS", "InvalidArguments", "Workflow", "workflow"]

# Workflows of common shapes: one task after another, and tasks at the same time.


class Shape(Workflow):
    """A workflow whose members are tasks, tuples of a task and its arguments, or other workflows."""

    def __init__(self, name: str, members: Sequence[Any]) -> None:
        if not members:
            raise InvalidWorkflow(f"{name}() needs at least one task")
        super().__init__(name)
        self._members = [_member(name, member) for member in members]

    def _tasks(self) -> Iterable[AnyTask]:
        return [what for what, _args in self._members if isinstance(what, Task)]

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
