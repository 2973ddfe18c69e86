"""Every public name as text: signatures, fields, bases of errors, commands, settings, checks and addresses."""

import argparse
import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

from django.contrib import admin
from django.core.checks import run_checks
from django.core.management import load_command_class
from django.core.management.base import BaseCommand
from django.dispatch import Signal
from django.test.utils import override_settings

import mq_django
from mq_django import errors, middleware, rsmq, signals, task_backend, testing, views, workflows
from mq_django import inspect as reads
from mq_django.conf import get_config
from tests.syntax_trees import nodes_of

#: Modules whose `__all__` is public.
MODULES = (mq_django, reads, middleware, rsmq, task_backend, testing, views, workflows)
#: What a class may have beside names without an underscore.
_SPECIAL = {"__getitem__", "__iter__", "__len__", "__contains__", "__bool__", "__call__"}
#: Python 3.11 writes `Unpack[Options]` so.
_UNPACKED = re.compile(r"\*<class '(\w+)'>")
_MODULE_PATH, _ADDRESS = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])"), re.compile(r" at 0x[0-9a-f]+")
_PACKAGE = Path(mq_django.__file__).parent

Lines = Iterator[str]


def public_things() -> Iterator[tuple[str, Any]]:
    """Yield what applications import by its name, and then the classes that they get from it."""
    told: set[type] = set()
    waiting: list[type] = []
    for module in MODULES:
        for name in sorted(module.__all__):
            thing = getattr(module, name)
            yield f"{module.__name__}.{name}", thing
            waiting += _classes_of(thing)
            if isinstance(thing, type):
                told.add(thing)
            elif not inspect.isfunction(thing):
                waiting.append(type(thing))
    while waiting:
        kind = waiting.pop(0)
        if kind not in told:
            told.add(kind)
            yield kind.__name__, kind
            waiting += sorted(_classes_of(kind), key=lambda found: found.__name__)


def names() -> Lines:
    """Yield what public_things() finds, with its signatures and fields."""
    for name, thing in public_things():
        yield f"\n{name}"
        if isinstance(thing, type):
            yield from _class(thing, constructor="." in name)
        elif inspect.isfunction(thing):
            yield f"    function{_signature(thing)}"
        else:
            yield f"    one {type(thing).__name__}"


def _class(kind: type, *, constructor: bool) -> Lines:
    """Yield the public part of a class; for those that applications make themselves, how they are made."""
    bases = ", ".join(base.__name__ for base in kind.__bases__)
    yield f"    class({bases}){_signature(kind) if constructor and _is_all_ours(kind) else ''}"
    if issubclass(kind, Enum):
        yield from (f"    {member.name} = {member.value!r}" for member in kind)
    defaults = _fields(kind)
    hints = get_type_hints(kind) if defaults else {}
    for name, default in defaults.items():
        yield f"    {name}: {_spelled(hints[name])}{'' if default is MISSING else f' = {_shown(default)}'}"
    for name, member in sorted(members(kind)):
        if isinstance(member, property):
            yield f"    {name} -> {_spelled(inspect.signature(member.fget).return_annotation)}"
        elif inspect.isfunction(member):
            yield f"    {'async ' if inspect.iscoroutinefunction(member) else ''}{name}{_signature(member)}"
        elif name not in defaults and not issubclass(kind, Enum):
            yield f"    {name} = {_shown(member)}"


def _is_all_ours(kind: type) -> bool:
    """Tell whether it is made as we say, and not as a class of Django says."""
    return not issubclass(kind, Exception) and {*kind.__mro__} <= {*_ours(kind), tuple, object}


def _fields(kind: type) -> dict[str, Any]:
    """Return the fields of a dataclass or named tuple with their defaults."""
    if is_dataclass(kind):
        ours = {name for base in _ours(kind) for name in base.__annotations__}
        return {field.name: field.default for field in fields(kind) if field.name in ours}
    return {name: kind._field_defaults.get(name, MISSING) for name in getattr(kind, "_fields", ())}


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public attributes of a class that we declare."""
    found = {name: member for base in reversed(_ours(kind)) for name, member in vars(base).items()}
    for name, member in found.items():
        if (not name.startswith("_") or name in _SPECIAL) and not (issubclass(kind, Enum) and name in kind.__members__):
            yield name, getattr(member, "__func__", member)


def _ours(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if base.__module__.startswith("mq_django")]


def _classes_of(thing: Any) -> Iterator[type]:
    """Yield the classes of ours in the annotations of a function, or of a class's public part."""
    found = [member for _, member in members(thing)] if isinstance(thing, type) else [thing]
    functions = [getattr(member, "fget", member) for member in found]
    hints = [get_type_hints(function) for function in functions if inspect.isfunction(function)]
    hints += [get_type_hints(thing)] if isinstance(thing, type) and _fields(thing) else []
    for annotation in (annotation for each in hints for annotation in each.values()):
        yield from _classes_in(annotation)


def _classes_in(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and annotation.__module__.startswith("mq_django"):
        yield annotation
    for part in get_args(annotation):
        yield from _classes_in(part)


def _signature(function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    given = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
    return _plain(str(signature.replace(parameters=given)))


def _spelled(annotation: Any) -> str:
    return _plain(inspect.formatannotation(annotation))


def _shown(value: Any) -> str:
    return _plain(repr(str(value) if isinstance(value, Path) else value))


def _plain(text: str) -> str:
    """Return text without paths of modules, which may move, and without addresses, the same on every Python."""
    return _UNPACKED.sub(r"Unpack[\1]", _MODULE_PATH.sub("", _ADDRESS.sub("", text)))


def every_error() -> Lines:
    """Yield the errors with their bases."""
    for name, kind in sorted(vars(errors).items()):
        if isinstance(kind, type) and issubclass(kind, errors.MQError):
            name_of_rsmq = vars(kind).get("name")
            yield f"{name}({', '.join(base.__name__ for base in kind.__bases__)})" + (
                f" name={name_of_rsmq!r}" if name_of_rsmq is not None else ""
            )


def every_signal() -> Lines:
    """Yield the signals with the arguments that they are sent with, wherever that is."""
    ours = {name for name, signal in vars(signals).items() if isinstance(signal, Signal)}
    sent: dict[str, set[str]] = {name: set() for name in ours}
    for _, call in nodes_of(sorted(_PACKAGE.rglob("*.py")), ast.Call):
        # Either signal.send(sender, ...) or a function that is given the signal.
        signal = call.keywords and {ast.unparse(call.func).partition(".send")[0], *map(ast.unparse, call.args)} & ours
        if signal:
            arguments = ", ".join(sorted(keyword.arg or "**" for keyword in call.keywords))
            sent[signal.pop()].add(arguments)
    for name in sorted(sent):
        yield name
        yield from (f"    {arguments}" for arguments in sorted(sent[name]))


def every_check() -> Lines:
    """Yield the ids of what `manage.py check` may say."""
    texts = (path.read_text(encoding="utf-8") for path in _PACKAGE.rglob("*.py"))
    yield from sorted({found for text in texts for found in re.findall(r'"(mq_django\.[EWI]\d{3})"', text)})


def every_command() -> Lines:
    """Yield the commands with their arguments; not those that every command of Django has."""
    of_django = {_argument(action) for action in BaseCommand().create_parser("", "")._actions}
    for path in sorted((_PACKAGE / "management" / "commands").glob("[!_]*.py")):
        parser = load_command_class("mq_django", path.stem).create_parser("manage.py", path.stem)
        yield f"\nmanage.py {path.stem}"
        yield from _arguments(parser, of_django)


def _arguments(parser: argparse.ArgumentParser, left_out: set[str]) -> Lines:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, verb in action.choices.items():
                yield f"\n{parser.prog} {name}"
                yield from _arguments(verb, left_out)
        elif action.help != argparse.SUPPRESS and (argument := _argument(action)) not in left_out:
            yield f"    {argument}"


def _argument(action: argparse.Action) -> str:
    known: Mapping[str, Any] = {
        "takes": _taken(action.type) if callable(action.type) else None,
        "nargs": action.nargs,
        "choices": list(action.choices) if action.choices else None,
        "default": action.default,
        "required": (action.required and action.option_strings) or None,
    }
    told = [f"{name} {value!r}" for name, value in known.items() if value is not None]
    return f"{', '.join(action.option_strings) or action.dest}: {', '.join(told)}".removesuffix(": ")


def _taken(parse: Callable[[str], Any]) -> str:
    """Return the type of what a parser of an argument returns, or its name if "1" is no value of it."""
    try:
        return type(parse("1")).__name__
    except argparse.ArgumentTypeError:
        return parse.__name__


def every_setting() -> Lines:
    """Yield the settings with their defaults."""
    configs = {"QUEUES": {"queue": {}, "shared": {"STORE": "rsmq"}}, "TOPICS": {"topic": {}}}
    with override_settings(MQ_DJANGO=configs, BASE_DIR=Path("/project")):
        config = get_config()
    parts = {
        "MQ_DJANGO": ({"NONE": 1}, config),
        'MQ_DJANGO["QUEUES"]["name"]': ({"QUEUES": {"name": {"NONE": 1}}}, config.queue("queue")),
        'MQ_DJANGO["QUEUES"]["name"], "STORE": "rsmq"': (
            {"QUEUES": {"name": {"STORE": "rsmq", "NONE": 1}}},
            config.queue("shared"),
        ),
        'MQ_DJANGO["TOPICS"]["name"]': ({"TOPICS": {"name": {"NONE": 1}}}, config.topic("topic")),
    }
    for title, (wrong, found) in parts.items():
        yield f"\n{title}"
        for name in _known(wrong):
            # Those of each queue and topic come below.
            is_below = name in ("QUEUES", "TOPICS")
            yield f"    {name}" if is_below else f"    {name} = {_shown(getattr(found, name.lower(), None))}"


def _known(wrong: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings that may stand beside one that is none, as the check tells them."""
    with override_settings(MQ_DJANGO=wrong):
        (problem,) = [found for found in run_checks(tags=["mq_django"]) if found.id == "mq_django.E001"]
    return re.findall(r"\b[A-Z][A-Z_]+\b", str(problem.hint))


def every_address() -> Lines:
    """Yield the names and addresses of the admin's pages, and the permissions."""
    for model, pages in admin.site._registry.items():
        if model._meta.app_label == "mq_django":
            yield f"{model._meta.label}, permissions: {', '.join(model._meta.default_permissions)}"
            yield from (f"    may {codename}" for codename, _ in model._meta.permissions)
            yield from sorted(f"    {page.name} at {page.pattern}" for page in pages.get_urls() if page.name)


#: What each golden file holds.
PARTS: dict[str, Callable[[], Lines]] = {
    "names": names,
    "errors": every_error,
    "signals": every_signal,
    "checks": every_check,
    "commands": every_command,
    "settings": every_setting,
    "admin": every_address,
}
