"""The page that publishes a message, or runs a task, by a form.

A message is given by a name and data, with the last one of the name as a sample. A task is given by the parameters of
its function. The fields are checked before the question, and keep their text if one is wrong.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from inspect import Parameter, signature
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mq_django import registry
from mq_django.admin.message_pages import editable, state_of
from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, confirm, needs, sentence_of, tabs
from mq_django.conf import get_config
from mq_django.core.filters import Filter
from mq_django.core.ids import STEP_NAME
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.partitions import public_name
from mq_django.core.publication import publication
from mq_django.core.redaction import REDACTED, is_redacted, redact_forms
from mq_django.core.texts import escape
from mq_django.errors import ConnectionLost, MQError, QueueFull, StoreError
from mq_django.inspector.message_lists import get_message
from mq_django.inspector.message_lists import messages as list_messages
from mq_django.inspector.message_views import MessageState, MessageView, ref_of
from mq_django.inspector.queues import activity
from mq_django.producers import queues
from mq_django.stores.activity import Effect, recorded

#: The fields with the options of a publish: texts, and numbers.
TEXTS, NUMBERS = ("key", "unique", "unique_for"), ("priority", "delay", "at_most", "expires")
#: Other fields: the task, the message that is published again, and the button that shows a sample.
TASK, STATE, REF, SAMPLE = "task", "state", "ref", "sample"
#: The prefix of the fields of a task's parameters.
PARAMETER = "p-"

#: The most names that are offered because messages had them.
MAX_NAMES = 100

#: Where a sample is searched for, for so many seconds.
SAMPLED: tuple[MessageState, ...] = ("ready", "pending", "delayed", "dead", "handled")
SECONDS = 0.4


class Asked(NamedTuple):
    """A form: what was typed, and what it means."""

    fields: dict[str, str]
    #: Field -> why it is wrong; "" has what concerns no field.
    errors: dict[str, str]
    name: str = ""
    data: Any = None
    #: Options of `publish()`, and of a task's `using()`.
    options: Mapping[str, Any] = {}
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}


@needs(VIEW, OPERATE)
def show(page: Page, name: str) -> HttpResponse:
    """Show the form, ask, and publish."""
    if GROUP_SEPARATOR in name:
        return page.leave(page.queue_url(name), _("Messages are published to the topic, not to one of its groups."))
    original = _original(page, name)
    if page.request.method != "POST":
        begun = _begun(page, original)
        if (task := begun.get(TASK)) and task not in _tasks(name):
            return page.leave(page.url("publish", name), str(NO_TASK))
        return _form(page, name, Asked(begun, {}), original)
    fields = {field: str(value) for field, value in page.request.POST.items() if field != "csrfmiddlewaretoken"}
    if SAMPLE in fields:
        return _form(page, name, _sampled(page, name, fields), original)
    asked = _read(name, fields)
    if not asked.errors:
        if not page.is_confirmed:
            return _ask(page, name, asked, original)
        try:
            message_id = _send(name, asked)
        except (MQError, TypeError) as error:
            asked.errors[""] = sentence_of(error) if isinstance(error, ConnectionLost | QueueFull) else str(error)
        else:
            return _published(page, name, asked, message_id)
    return _form(page, name, asked, original)


def _original(page: Page, name: str) -> MessageView | None:
    """Return the message that is published again, which only users who may see data can."""
    given = page.request.GET if page.request.method != "POST" else page.request.POST
    state, ref = given.get(STATE, ""), given.get(REF, "")
    if not state or not ref or not page.can(SEE_DATA):
        return None
    found = get_message(name, state_of(state), ref_of(filter_form.named(page, ref)))
    return found if found is not None and found.has_data else None


def _begun(page: Page, original: MessageView | None) -> dict[str, str]:
    """Return the fields of a form that was opened."""
    if original is None:
        return {field: page.request.GET.get(field, "")[:255] for field in ("name", TASK)}
    headers, key = dict(original.headers), original.key or ""
    return {
        "name": original.name,
        "data": editable(original.data),
        # A placeholder would be another key.
        "key": key if redact_forms(key) == key else "",
        "priority": str(original.priority or ""),
        "headers": editable(headers) if headers else "",
        STATE: page.request.GET.get(STATE, ""),
        REF: page.request.GET.get(REF, ""),
    }


def _sampled(page: Page, name: str, fields: dict[str, str]) -> Asked:
    """Return the form with the data of the last message of its name that is found."""
    if not page.can(SEE_DATA):
        return Asked(fields, {"data": _("You do not have permission to see message data.")})
    called, deadline = fields.get("name", "").strip(), time.monotonic() + SECONDS
    for part in get_config().queue(name).each_part if called else ():
        for state in SAMPLED:
            if time.monotonic() > deadline:
                break
            found = list_messages(part.name, state, Filter(name=called), limit=5).rows
            for view in found:
                if view.name == called and view.has_data:
                    return Asked({**fields, "data": editable(view.data)}, {})
    return Asked(fields, {"data": _("No message of this name was found.")})


def _read(name: str, fields: dict[str, str]) -> Asked:
    """Return what a form means, with what is wrong."""
    errors: dict[str, str] = {}
    options: dict[str, Any] = {}
    for field in NUMBERS:
        if written := fields.get(field, "").strip():
            try:
                options[field] = int(written) if field == "priority" else float(written)
            except ValueError:
                errors[field] = _("This is not a number.")
    options |= {field: fields[field] for field in TEXTS if fields.get(field)}
    if headers := _json(fields, "headers", errors):
        options["headers"] = headers
    if fields.get(TASK):
        return _read_task(name, Asked(fields, errors, fields[TASK], None, options))
    data = _json(fields, "data", errors)
    asked = Asked(fields, errors, fields.get("name", "").strip(), data, options)
    if not errors:
        try:
            publication(get_config().queue(public_name(name)), asked.name, data, **options)
        except (MQError, OverflowError) as error:
            errors[""] = str(error)
    return asked


def _json(fields: Mapping[str, str], field: str, errors: dict[str, str]) -> Any:
    """Return the JSON in a field, None for an empty one; note what is wrong."""
    if not fields.get(field, "").strip():
        return None
    try:
        found = text.read_json(fields[field])
    except text.NotJSON as error:
        errors[field] = str(error)
        return None
    if is_redacted(found):
        hidden = _("%(mark)s stands for a secret that is not shown. Write its value.")
        errors[field] = hidden % {"mark": REDACTED}
    return found


# Tasks.


NO_TASK = gettext_lazy("This task is not registered here.")


def _tasks(name: str) -> dict[str, registry.Handler]:
    """Return the handlers of the tasks that can be run in a queue. Steps run only in workflows."""
    found = {each: registry.find(name, each) for each in sorted(registry.names(name)) if not each.startswith(STEP_NAME)}
    return {each: handler for each, handler in found.items() if handler is not None and handler.accepts is not None}


def _parameters(name: str, task: str) -> list[Parameter]:
    """Return the parameters of a task; none for another name."""
    handler = _tasks(name).get(task)
    if handler is None or handler.function is None:
        return []
    found = list(signature(handler.function).parameters.values())
    return found[1:] if getattr(import_string(task), "takes_context", False) else found


def _read_task(name: str, asked: Asked) -> Asked:
    handler = _tasks(name).get(asked.name)
    if handler is None or handler.accepts is None:
        asked.errors[TASK] = str(NO_TASK)
        return asked
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for parameter in _parameters(name, asked.name):
        field = f"{PARAMETER}{parameter.name}"
        if not asked.fields.get(field, "").strip():
            if parameter.default is Parameter.empty and not _is_variable(parameter):
                asked.errors[field] = _("This parameter has no default.")
            continue
        value = _value(parameter, asked.fields[field], field, asked.errors)
        if parameter.kind is Parameter.VAR_POSITIONAL:
            args += value if isinstance(value, list) else [value]
        elif parameter.kind is Parameter.VAR_KEYWORD:
            kwargs |= value if isinstance(value, dict) else {}
        elif parameter.kind is Parameter.POSITIONAL_ONLY:
            args.append(value)
        else:
            kwargs[parameter.name] = value
    if not asked.errors:
        try:
            handler.accepts(args, kwargs)
        except TypeError as error:
            asked.errors[""] = str(error)
    return asked._replace(args=tuple(args), kwargs=kwargs)


def _is_variable(parameter: Parameter) -> bool:
    return parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def _value(parameter: Parameter, written: str, field: str, errors: dict[str, str]) -> Any:
    """Return the value of a parameter: text if it is annotated as that, else JSON, or text if its type is unknown."""
    if parameter.annotation in (str, "str"):
        return written
    try:
        return text.read_json(written)
    except text.NotJSON as error:
        if parameter.annotation is Parameter.empty and not _is_variable(parameter):
            return written
        errors[field] = str(error)
        return None


def _shown_parameters(name: str, asked: Asked) -> Iterator[dict[str, str]]:
    for parameter in _parameters(name, asked.fields.get(TASK, "")):
        field = f"{PARAMETER}{parameter.name}"
        annotation = parameter.annotation
        kind = "" if annotation is Parameter.empty else f": {getattr(annotation, '__name__', annotation)}"
        default = "" if parameter.default is Parameter.empty else repr(parameter.default)[:200]
        star = "*" * ((parameter.kind is Parameter.VAR_POSITIONAL) + 2 * (parameter.kind is Parameter.VAR_KEYWORD))
        yield {
            "field": field,
            "label": f"{star}{parameter.name}{kind}",
            "default": default,
            "value": asked.fields.get(field, ""),
            "error": asked.errors.get(field, ""),
        }


# The form, the question, and the result.


def _form(page: Page, name: str, asked: Asked, original: MessageView | None) -> HttpResponse:
    tasks = list(_tasks(name))
    task = asked.fields.get(TASK, "")
    handled = {each for each in {*registry.names(name), *_seen(name)} if each and not each.startswith(STEP_NAME)}
    return page.render(
        "publish",
        _("Run a task") if task else _("Publish a message"),
        queue=name,
        tabs=tabs(page, name, "queue"),
        asked=asked.fields,
        errors={field or "form": text.visible(error, limit=1000) for field, error in asked.errors.items()},
        tasks=tasks,
        task=task,
        parameters=list(_shown_parameters(name, asked)),
        handled=sorted(handled - {*tasks}),
        is_again=original is not None,
        act_url=page.url("publish", name),
        back_url=page.queue_url(name),
    )


def _seen(name: str) -> list[str]:
    """Return the names of messages that a queue had within a day; none if they cannot be read: the form is of use."""
    with suppress(StoreError):
        found = [one.name for one in activity(name, hours=24).names[:MAX_NAMES] if one.name]
        # Nobody can see what the others are.
        return [each for each in found if each.isprintable()]
    return []


def _ask(page: Page, name: str, asked: Asked, original: MessageView | None) -> HttpResponse:
    is_task = bool(asked.fields.get(TASK))
    shown: Any = {"args": list(asked.args), "kwargs": dict(asked.kwargs)} if is_task else asked.data
    changes = "" if original is None or is_task else text.difference(original.data, asked.data)
    unchanged = original is not None and not is_task and not changes
    handler = registry.find(name, asked.name)
    sentence = _("It is a new message, with a new id.") if not is_task else _("It runs as soon as a consumer is free.")
    if handler is None and not get_config().queue(name).external:
        sentence += " " + _("No handler for this name is registered here, so the message waits until one is.")
    return confirm(
        page,
        name,
        (_("Run task “%(name)s”?") if is_task else _("Publish message “%(name)s”?")) % {"name": escape(asked.name)},
        sentence + (" " + _("Its data is that of the original.") if unchanged else ""),
        _("Yes, run it") if is_task else _("Yes, publish it"),
        back_url=page.url("publish", name),
        fields=[(field, value) for field, value in asked.fields.items() if value],
        listed=[text.visible(f"{option}: {value}", limit=300) for option, value in asked.options.items()],
        samples={
            "diff": changes or text.pretty(shown),
            "diff_title": _("Changes of the data") if changes else _("Arguments") if is_task else _("Data"),
        },
    )


@recorded("publish", effect=lambda given, made: Effect(1, given["asked"].name, about=[made]))
def _send(name: str, asked: Asked) -> str:
    """Publish the message, or run the task, and return its id."""
    queue = public_name(name)
    if not asked.fields.get(TASK):
        return queues[queue].publish(asked.name, asked.data, on_commit=False, **asked.options)
    task = import_string(asked.name).using(queue_name=queue, on_commit=False, **asked.options)
    enqueue: Callable[..., Any] = task.enqueue
    return str(enqueue(*asked.args, **asked.kwargs).id)


def _published(page: Page, name: str, asked: Asked, message_id: str) -> HttpResponse:
    is_task = bool(asked.fields.get(TASK))
    said = _("Task %(name)s was enqueued.") if is_task else _("Message %(name)s was published.")
    verb = "Ran task" if is_task else "Published message"
    page.log(name, f"{verb} {asked.name[:200]} as {message_id}")
    # There it is found in any state.
    url = f"{page.url('find')}?{urlencode({'id': message_id})}"
    return page.leave(url, said % {"name": escape(asked.name)[:100]}, messages.SUCCESS)
