"""Names are unique, and modules, classes and functions stay small."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles

import pytest

ROOT = Path(__file__).parent.parent / "mq_django"
MODULES = [path for path in sorted(ROOT.rglob("*.py")) if "migrations" not in path.parts]

#: Django asks for these names, each in its place: commands, the model behind the admin's pages, options of models.
DJANGO_NAMES = {"Command", "Meta", "Queue"}
#: Modules in which the inspector shows what the other module is about.
SAME_SUBJECT = {"messages", "queues", "topics"}

MAX_MODULE, MAX_CLASS = 320, 250
#: Modules that may be longer: that of the errors has a class and a line for each.
LONGER = {"errors.py": 360}
#: Where the kind of a queue is asked, to choose its store, its dead letters, how it accepts others', and its reader.
CHOOSERS = {
    "stores/__init__": 3,
    "stores/dead_letter_queue": 1,
    "stores/found_messages": 1,
    "stores/moving": 1,
    "inspector/readers": 2,
}
#: The clock itself, and what compares the times of files. Everything else takes its times from `core/clock.py`.
READ_THE_MACHINES_CLOCK = {
    "core/clock",
    "transport/test_clock",
    "transport/embedded",
    "consumers/supervisor/autoreload",
}
WALL_CLOCKS = re.compile(r"(^|\.)(time\.time(_ns)?|timezone\.now|datetime\.(now|utcnow|today)|date\.today)$")
#: Without the docstring.
MAX_FUNCTION, P90_FUNCTION = 50, 18


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[Path, ast.AST]]:
    for path in MODULES:
        yield from ((path, node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds))


def lines(node: ast.AST) -> int:
    return node.end_lineno - node.lineno + 1


def lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    documented = ast.get_docstring(function) is not None
    return lines(function) - (lines(function.body[0]) if documented else 0)


def repeated(named: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    found = defaultdict(list)
    for name, place in named:
        found[name].append(place)
    return {name: places for name, places in found.items() if len(places) > 1}


def test_no_class_name_stands_for_two_classes():
    found = repeated((node.name, str(path)) for path, node in nodes(ast.ClassDef))
    assert found.keys() == DJANGO_NAMES


def test_no_file_name_stands_for_two_modules():
    found = repeated((path.stem, str(path)) for path in MODULES if path.stem != "__init__")
    assert found.keys() == SAME_SUBJECT


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_stay_small(path):
    assert len(path.read_text().splitlines()) <= LONGER.get(path.name, MAX_MODULE)


def test_classes_stay_small():
    found = {node.name: lines(node) for _, node in nodes(ast.ClassDef) if lines(node) > MAX_CLASS}
    assert found == {}


def test_functions_fit_on_a_screen():
    found = {lines_of_code(node): node.name for _, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef)}
    assert max(found) <= MAX_FUNCTION, found[max(found)]


def test_each_connection_to_redis_is_for_a_given_server():
    """A queue or topic may have a server of its own: the default of these functions is for tests only."""
    opened = [
        f"{path}:{call.lineno}"
        for path, call in nodes(ast.Call)
        if getattr(call.func, "id", "") in ("open_wire", "open_session", "get_client") and len(call.args) < 2
    ]
    assert opened == []


def test_all_wall_time_is_read_from_one_clock():
    """A test kit moves the time of everything in this one place."""
    named = [(path, ast.unparse(node)) for path, node in nodes(ast.Attribute)]
    named += [(path, f"{node.module}.{alias.name}") for path, node in nodes(ast.ImportFrom) for alias in node.names]
    found = {path.relative_to(ROOT).with_suffix("").as_posix() for path, name in named if WALL_CLOCKS.search(name)}
    assert found == READ_THE_MACHINES_CLOCK


def test_most_functions_are_short():
    found = [lines_of_code(node) for _, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef)]
    assert quantiles(found, n=10)[-1] <= P90_FUNCTION


def test_the_kind_of_a_queue_is_asked_only_where_something_is_chosen_for_it():
    asked = Counter(
        path.relative_to(ROOT).with_suffix("").as_posix()
        for path, node in nodes(ast.Call)
        if ast.unparse(node.func) in ("isinstance", "issubclass") and re.search(r"\b(Rsmq|Group)", ast.unparse(node))
    )
    assert asked == CHOOSERS
