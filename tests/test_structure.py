"""Rules about the code of the package. Each test lists all that breaks its rule, and says why there is one."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles

import pytest

from tests.syntax_trees import nodes_of

ROOT = Path(__file__).parent.parent / "mq_django"
PATHS = [path for path in sorted(ROOT.rglob("*.py")) if "migrations" not in path.parts]

#: What the rules look at.
KINDS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Call, ast.Attribute, ast.ImportFrom)

#: Django asks for these names, each in its place: commands, the model behind the admin's pages, options of models.
DJANGO_NAMES = {"Command", "Meta", "Queue"}

MAX_MODULE, MAX_CLASS = 600, 300
#: Without the docstring.
MAX_FUNCTION, P90_FUNCTION = 50, 18
#: Where the kind of a queue is asked, to choose its store, its dead letters, how it accepts others', and its reader.
CHOOSERS = {
    "stores/__init__": 3,
    "stores/dead_letters": 1,
    "stores/message_scans": 1,
    "stores/moving": 1,
    "inspector/readers": 2,
}
#: The clock itself, and what compares the times of files. Everything else takes its times from `core/clock.py`.
READ_THE_MACHINES_CLOCK = {
    "core/clock",
    "transport/test_server",
    "transport/private_server",
    "consumers/supervisor/reload",
}
WALL_CLOCKS = re.compile(r"(^|\.)(time\.time(_ns)?|timezone\.now|datetime\.(now|utcnow|today)|date\.today)$")
#: The last parts of what it matches.
LAST_PARTS = {"time", "time_ns", "now", "utcnow", "today"}
#: Loggers that are not ours, or are only configured.
OTHER_LOGGERS = {"core/logs", "task_backend/task_api", "consumers/worker/loops"}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
#: What int() and float() are called with where Redis is read: clocks, what Redis itself counts or has checked to be a
#: number, and text whose length was looked at before.
CHECKED_NUMBERS = re.compile(
    r"clock\.now|now|reply_or_raise|(self\._)?transport\.(ask|run)\(|deleted$|not |score$|start \+"
    r"|(cursor|part|found\[\d\]|flat\[at \+ 2\])$"
)
#: What `tonumber()` gets in scripts: arguments, parts of ids and of texts that were looked at, and scores.
CHECKED_IN_SCRIPTS = re.compile(
    r"ARGV|argv\[|arguments\[|table\.remove\(ARGV\)|string\.match\(|string\.sub\(redis\.sha1hex"
    r"|(row|ms|n|known_ms|known_n|number|seq|of_round|now|step|longest|length|read|removed|lost)\)"
    r"|(score|old|before|first|last|head|at|found\[at \+ 1\])\)|redis\.call\('zscore'"
)
#: Where it reads what anybody may have written: in the rule itself, and where what is no number stands for many.
READ_NUMBERS_IN_SCRIPTS = {"numbers: text)", "count: known) or 1000) < 1000 then"}


@pytest.fixture(scope="module")
def nodes():
    """Return the nodes of these types, each with the name of its module."""
    kinds = defaultdict(list)
    for path, node in nodes_of(PATHS, *KINDS):
        kinds[type(node)].append((name_of(path), node))
    return lambda *wanted: [found for kind in wanted for found in kinds[kind]]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").as_posix()


def lines(node: ast.AST) -> int:
    return node.end_lineno - node.lineno + 1


@pytest.fixture
def functions(nodes) -> list[tuple[str, int]]:
    """Return the place of each function, and its lines without the docstring."""
    found = []
    for module, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        documented = ast.get_docstring(node) is not None
        found.append((f"{module}: {node.name}", lines(node) - (lines(node.body[0]) if documented else 0)))
    return found


def repeated(names: Iterator[tuple[str, str]]) -> set[tuple[str, str]]:
    return {name for name, count in Counter(names).items() if count > 1}


def test_names_are_unique_within_a_package(nodes):
    why = "A reader who searches a name in a package finds one thing."
    names = ((module.rpartition("/")[0], node.name) for module, node in nodes(ast.ClassDef))
    assert {name for _, name in repeated(names)} <= DJANGO_NAMES, why


def test_each_package_begins_with_an_essay():
    why = "A reader learns first what a package is for, how data flows through it, and what it never does."
    packages = [
        path for path in PATHS if path.name == "__init__.py" and path.parent.name not in {ROOT.name, "commands"}
    ]
    sizes = {
        name_of(path): len(ast.get_docstring(ast.parse(path.read_text("utf-8"))).splitlines()) for path in packages
    }
    assert {package: size for package, size in sizes.items() if not 15 <= size <= 40} == {}, why


def test_modules_and_classes_stay_small(nodes):
    why = "One module has one subject, and a class one task: split it by what it does."
    sizes = {name_of(path): path.read_text(encoding="utf-8").count("\n") for path in PATHS}
    assert {module: size for module, size in sizes.items() if size > MAX_MODULE} == {}, why
    classes = {node.name: lines(node) for _, node in nodes(ast.ClassDef)}
    assert {name: size for name, size in classes.items() if size > MAX_CLASS} == {}, why


def test_functions_fit_on_a_screen(functions):
    why = "What is read at once is understood at once: name the steps, and make them functions."
    assert {place: size for place, size in functions if size > MAX_FUNCTION} == {}, why
    assert quantiles([size for _, size in functions], n=10)[-1] <= P90_FUNCTION, why


def test_each_connection_to_redis_is_for_a_given_server(nodes):
    why = "A queue or topic may have a server of its own: the default of these functions is for tests only."
    openers = ("open_transport", "open_session", "get_client")
    calls = ((f"{module}:{call.lineno}", call) for module, call in nodes(ast.Call))
    found = [place for place, call in calls if getattr(call.func, "id", "") in openers and len(call.args) < 2]
    assert found == [], why


def test_all_wall_time_is_read_from_one_clock(nodes):
    why = "A test kit moves the time of everything in core/clock.py."
    named = [(module, ast.unparse(node)) for module, node in nodes(ast.Attribute) if node.attr in LAST_PARTS]
    named += [(module, f"{node.module}.{alias.name}") for module, node in nodes(ast.ImportFrom) for alias in node.names]
    assert {module for module, name in named if WALL_CLOCKS.search(name)} == READ_THE_MACHINES_CLOCK, why


def test_the_kind_of_a_queue_is_asked_only_where_something_is_chosen_for_it(nodes):
    why = "A kind of queue is a value that describes it: code that asks for it has to be changed for each new one."
    asked = Counter(
        module
        for module, call in nodes(ast.Call)
        if getattr(call.func, "id", "") in ("isinstance", "issubclass")
        and re.search(r"\b(Rsmq|Group)", ast.unparse(call))
    )
    assert asked == CHOOSERS, why


def test_every_module_takes_its_logger_from_one_place(nodes):
    why = "A text from Redis must not write a log line of its own: core/logs.py escapes what it is given."
    assert {module for module, node in nodes(ast.Attribute) if node.attr == "getLogger"} == OTHER_LOGGERS, why


def test_no_call_of_a_logger_writes_its_text_itself(nodes):
    """Only arguments are escaped: a text that was put together before would pass."""
    found = [
        f"{module}:{call.lineno}"
        for module, call in nodes(ast.Call)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in LEVELS
        and getattr(call.func.value, "id", "") == "logger"
        and not isinstance(call.args[0], ast.Constant | ast.Name)
    ]
    assert found == [], "Only arguments are escaped: give the logger a constant text."


def test_what_redis_holds_is_read_as_a_number_in_one_place(nodes):
    found = [
        f"{module}:{call.lineno}: {ast.unparse(call)}"
        for module, call in nodes(ast.Call)
        if module.startswith(("stores/", "inspector/"))
        and getattr(call.func, "id", "") in ("int", "float")
        and not (CHECKED_NUMBERS.match(ast.unparse(call.args[0])) or "hexdigest" in ast.unparse(call))
    ]
    assert found == [], "What anybody may have written may be no number, or one of megabytes: use core/jsontext.py."


def test_a_value_in_a_message_is_shown_by_one_function():
    """It may be of any type and length, and its repr() may fail: repr_of() cannot."""
    shown = re.compile(r"\{[^{}]*!r:\.[0-9]")
    own = {"core/texts", "testing/published"}
    found = {path.relative_to(ROOT).with_suffix("").as_posix() for path in PATHS if shown.search(path.read_text())}
    assert found - own == set()


def test_the_name_of_a_class_is_shown_by_one_function(nodes):
    found = [
        f"{module}:{node.lineno}"
        for module, node in nodes(ast.Attribute)
        if node.attr in ("__name__", "__qualname__") and re.match(r"type\(.*\)$", ast.unparse(node.value))
    ]
    assert found == [], "A metaclass may show another name, or raise: class_name() and path_of() cannot fail."


def test_scripts_read_numbers_of_others_by_one_function():
    """What a field holds may be no number, or one of megabytes, beyond what a double counts."""
    found = {
        f"{path.stem}: {call[1]}"
        for path in sorted((ROOT / "transport/lua").rglob("*.lua"))
        for line in path.read_text().splitlines()
        for call in re.finditer(r"\btonumber\((?=(.*))", line)
        if not CHECKED_IN_SCRIPTS.match(call[1])
    }
    assert found == READ_NUMBERS_IN_SCRIPTS, "Use number_of() of parts/numbers.lua: it returns 0 for what is no number."
