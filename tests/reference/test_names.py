"""docs/reference/ describes every public name, and no other, and uses each in an example."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from operator import attrgetter
from types import ModuleType
from typing import Any

from django.dispatch import Signal

from mq_django import errors, signals
from tests.golden.public import public_things
from tests.optional import needs_opentelemetry, needs_prometheus, needs_sentry
from tests.shell import ROOT

pytestmark = [needs_opentelemetry, needs_prometheus, needs_sentry]

MONITORING = [f"mq_django.observability.{name}" for name in ("correlation", "opentelemetry", "prometheus", "sentry")]

PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "reference").glob("*.md"))}
#: A directive that describes a name, without the signature that may follow.
DESCRIBED = re.compile(r"^\.\. (?:auto\w+|py:\w+):: ([\w.]+)", re.MULTILINE)


def public() -> Iterator[tuple[str, Any]]:
    """Yield what applications import or get, with the name that they import it by, if there is one."""
    yield from public_things()
    for module in (errors, *map(import_module, MONITORING)):
        yield from ((f"{module.__name__}.{name}", thing) for name, thing in defined(module))
    yield from (
        (f"{signals.__name__}.{name}", each) for name, each in vars(signals).items() if isinstance(each, Signal)
    )


def defined(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name, thing in vars(module).items():
        is_own = getattr(thing, "__module__", "") == module.__name__
        if is_own and not name.startswith("_") and (inspect.isclass(thing) or inspect.isfunction(thing)):
            yield name, thing


def found(name: str) -> Any:
    """Return what a dotted name stands for."""
    module, _, rest = name.rpartition(".")
    return attrgetter(rest)(import_module(module))


def test_each_public_name_is_described_once_and_nothing_else_is():
    described = [name for page in PAGES.values() for name in DESCRIBED.findall(page)]
    assert len(described) == len(set(described))
    # Some names stand for the same thing in two modules.
    by_id = {id(thing): name for name, thing in reversed(list(public()))}
    known = {id(found(name)) for name in described}
    assert {name for key, name in by_id.items() if key not in known} == set()
    assert {name for name in described if id(found(name)) not in by_id} == set()


def test_each_name_that_applications_import_is_in_an_example():
    examples = "\n".join(box for page in PAGES.values() for box in re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    imported = {
        name.rpartition(".")[2] for name, _ in public() if "." in name and not name.startswith("mq_django.errors.")
    }
    assert {name for name in imported if not re.search(rf"\b{name}\b", examples)} == set()


def test_each_page_is_in_the_table_of_contents():
    contents = re.search(r"```{toctree}\n.*?\n\n(.*?)```", PAGES["index"], re.DOTALL)[1].split()
    assert sorted(contents) == sorted(PAGES.keys() - {"index", "changes"})
