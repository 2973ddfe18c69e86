"""Every public callable says what it does, takes and raises."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from mq_django import errors
from tests.golden.public import members, public_things

_ERRORS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}


def callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, thing in public_things():
        if inspect.isfunction(thing):
            yield name, thing
        elif isinstance(thing, type):
            yield from (
                (f"{name}.{called}", member)
                for called, member in members(thing)
                if inspect.isfunction(member) and not called.startswith("_")
            )


THINGS, CALLABLES = dict(public_things()), dict(callables())


def test_every_public_class_and_callable_has_a_docstring():
    found = []
    for name, thing in (THINGS | CALLABLES).items():
        documented = thing if inspect.isroutine(thing) or isinstance(thing, type) else type(thing)
        # Dataclasses and named tuples have their signature for one.
        if (documented.__doc__ or f"{documented.__name__}(").startswith(f"{documented.__name__}("):
            found.append(name)
    assert found == [], "help() and the editor show a docstring: it is the first page of the documentation."


def test_a_docstring_names_every_parameter():
    found = {}
    for name, function in CALLABLES.items():
        parameters = [each for each in inspect.signature(function).parameters if each not in ("self", "cls", "_")]
        if missing := [each for each in parameters if not re.search(rf"\b{each}\b", documentation(name))]:
            found[name] = missing
    assert found == {}, "Its type does not say what a parameter means, nor its unit."


def test_no_parameter_is_hidden():
    found = {}
    for name, function in CALLABLES.items():
        parameters = inspect.signature(function).parameters.values()
        hidden = [each.name for each in parameters if each.kind is each.VAR_KEYWORD and each.annotation is Any]
        if missing := [each for each in hidden if not re.search(rf"\b{each}: ", documentation(name))]:
            found[name] = missing
    assert found == {}, "Arguments of an application's own function are passed on: the docstring says so."


def test_a_docstring_lists_the_errors_that_the_function_raises():
    found = {}
    for name, function in CALLABLES.items():
        errors_of = raised(inspect.unwrap(function))
        if missing := sorted(error for error in errors_of if not lists(documentation(name), error)):
            found[name] = missing
    assert found == {}, "Callers handle the errors that they know."


def test_what_is_returned_is_not_read_as_a_type():
    """Napoleon takes the text before a colon for the type."""
    found = {}
    for name in CALLABLES:
        for first in re.findall(r"^ *(?:Returns|Yields):\n *(.+)", documentation(name), re.MULTILINE):
            if re.search(r":(?: |$)", first):
                found[name] = first
    assert found == {}


def documentation(name: str) -> str:
    """Return the docstring of a callable, or the one that it refers to, with the docstring of its class."""
    own = str(CALLABLES[name].__doc__)
    referred = re.fullmatch(r"See ([\w.]+)\(\)\.", own)
    if referred is not None:
        return documentation(referred[1])
    owner = THINGS.get(name.rpartition(".")[0])
    return f"{own}\n{owner.__doc__ if isinstance(owner, type) else ''}"


def lists(documented: str, error: str) -> bool:
    """Return whether an error or one of its bases is listed."""
    bases = {base.__name__ for base in _ERRORS[error].__mro__ if base.__name__ in _ERRORS} - {"MQError"}
    return any(re.search(rf"\b{base}\b", documented) for base in bases)


def raised(function: Callable[..., Any]) -> set[str]:
    """Return the errors of ours that a function raises, or one that it calls by its name or as its own method.

    Left out are what stands in a `try`, which may be caught, and in a lambda, which is called later.
    """
    found: set[str] = set()
    waiting, seen = [function], {function}
    while waiting:
        errors_of, called = _read(waiting.pop())
        found |= errors_of
        waiting += called - seen
        seen |= called
    return found


@cache
def _read(function: Callable[..., Any]) -> tuple[set[str], set[Callable[..., Any]]]:
    """Return the errors that a function itself raises, and the functions that it calls. Many call the same ones."""
    found, called = set(), set()
    for node in _uncaught(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Raise) and node.exc is not None:
            found |= {part.id for part in ast.walk(node.exc) if isinstance(part, ast.Name)} & _ERRORS.keys()
        elif isinstance(node, ast.Call):
            called.add(_called(node.func, function, _owner(function)))
    return found, called - {None}


def _uncaught(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    inside = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Try):
        inside = [*node.handlers, *node.orelse, *node.finalbody]
    for each in inside:
        if not isinstance(each, ast.Lambda):
            yield from _uncaught(each)


def _called(called: ast.expr, function: Callable[..., Any], owner: type | None) -> Callable[..., Any] | None:
    """Return the function of ours that an expression calls, when its name says so."""
    match called:
        case ast.Name(id=name):
            found = function.__globals__.get(name)
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            found = getattr(owner, name, None)
        case _:
            found = None
    is_ours = inspect.isfunction(found) and found.__module__.startswith("mq_django")
    return inspect.unwrap(found) if is_ours else None


def _owner(function: Callable[..., Any]) -> type | None:
    owner = function.__globals__.get(function.__qualname__.rpartition(".")[0])
    return owner if isinstance(owner, type) else None
