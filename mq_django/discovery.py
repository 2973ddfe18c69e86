"""Find the modules of installed apps that declare tasks, handlers or subscribers, and import these.

A module is found by its source, which is parsed and not executed: outside its functions it uses a decorator that it
has imported from mq_django or from Django's tasks. Nothing that a message names is imported.
"""

import ast
import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any
from zipimport import zipimporter

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage

from mq_django.conf import read
from mq_django.core.logs import get_logger
from mq_django.core.texts import line, summary_of

logger = get_logger(__name__)

Check = Callable[..., list[CheckMessage]]

#: The decorators, and how the paths of all that their packages have begin.
DECORATORS = ("task", "handler", "subscriber")
_PREFIXES = ("mq_django.", "django.tasks.", "django_tasks.")

#: What is not in a file without declarations, which is then not parsed.
_LIKELY = re.compile(rb"mq_django|django\.tasks|django_tasks|from django import [^\n]*(tasks|\()")
_TESTS = re.compile(r"\.(tests?|conftest|test_\w+|\w+_tests?)$")


@dataclass(frozen=True, slots=True)
class NotImported:
    """A module that cannot be parsed or imported."""

    module: str
    error: BaseException
    #: It is one of `MQ_DJANGO["MODULES"]`.
    is_named: bool

    @property
    def text(self) -> str:
        """The error on one line."""
        return line(summary_of(self.error))


@cache
def import_declaring() -> Sequence[NotImported]:
    """Import the modules in `MODULES`, and with `DISCOVER` the modules of installed apps, once a process.

    Returns:
        The modules that fail. None keeps another one from being imported.
    """
    config, _problems = read(getattr(settings, "MQ_DJANGO", {}))
    failed = []
    for name in config.modules:
        try:
            import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the module does
            failed.append(NotImported(name, error, is_named=True))
    for name, finder, path in list(_modules()) if config.discover else ():
        try:
            if _declares(_source(finder, path)):
                import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the module does
            failed.append(NotImported(name, error, is_named=False))
    return failed


def import_declaring_loudly() -> None:
    """Import the same modules, and log those that fail."""
    for failed in import_declaring():
        logger.error("The module %s cannot be imported: %s", failed.module, failed.text, exc_info=failed.error)


class UnimportedSources:
    """The sources of the modules of installed apps that are not imported, to see when one begins to declare."""

    def __init__(self) -> None:
        #: The path of a source -> when it was written, and the same again if it declares something, else 0.
        self._known: dict[str, tuple[float, float]] = {}
        self._has_looked = False

    def changes(self) -> Iterator[tuple[Path, float]]:
        """Yield the path of each source, and when it was written if it declares something, else 0.

        One that was not there at an earlier call comes with 0 first. A source is parsed again only when it was written.
        """
        config, _problems = read(getattr(settings, "MQ_DJANGO", {}))
        for _name, finder, path in _modules() if config.discover else ():
            try:
                written = Path(path).stat().st_mtime
                if path not in self._known and self._has_looked:
                    yield Path(path), 0.0
                if self._known.get(path, (0.0, 0.0))[0] != written:
                    self._known[path] = (written, written if _declares(_source(finder, path)) else 0.0)
            except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                continue  # it may be half written
            yield Path(path), self._known[path][1]
        self._has_looked = True


def after_imports(check: Check) -> Check:
    """Return a system check that first imports the same modules. Django runs the checks in any order."""

    @wraps(check)
    def checked(**options: Any) -> list[CheckMessage]:
        import_declaring()
        return check(**options)

    return checked


def _modules() -> Iterator[tuple[str, object, str]]:
    """Yield the modules of installed apps that are not imported yet: name, finder and the path of the source."""
    installed = {app.name for app in apps.get_app_configs()}
    for app in apps.get_app_configs():
        if not f"{app.name}.".startswith(_PREFIXES):
            yield from _modules_in(app.name, getattr(app.module, "__path__", ()), installed)


def _modules_in(package: str, paths: Iterable[str], installed: Container[str]) -> Iterator[tuple[str, object, str]]:
    for path in paths:
        found = list(iter_modules([path], f"{package}."))
        if package not in installed and any(each.name == f"{package}.apps" for each in found):
            continue  # an app that is not installed
        folders = [(each.name, f"{path}/{each.name.rpartition('.')[2]}") for each in found if each.ispkg]
        for finder, name, is_package in found:
            if name not in sys.modules and not _TESTS.search(name):
                yield name, finder, f"{path}/{name.rpartition('.')[2]}{'/__init__' if is_package else ''}.py"
        for name, folder in (*folders, *((f"{package}.{name}", folder) for name, folder in _plain_folders(path))):
            # A link could lead back.
            if name not in installed and not _TESTS.search(name) and not Path(folder).is_symlink():
                yield from _modules_in(name, [folder], installed)


def _source(finder: object, path: str) -> bytes:
    """Return the source of a module; nothing if there is only its bytecode, or it is written in another language."""
    try:
        return finder.get_data(path) if isinstance(finder, zipimporter) else Path(path).read_bytes()
    except PermissionError:
        raise
    except OSError:
        return b""


def _plain_folders(path: str) -> Iterator[tuple[str, str]]:
    """Yield the folders from which modules can be imported though they have no `__init__.py`: name and path."""
    for folder in Path(path).glob("*"):
        if folder.name.isidentifier() and folder.is_dir():
            names = {each.name for each in folder.glob("*.py")}
            if names and "__init__.py" not in names:
                yield folder.name, str(folder)


def _declares(source: bytes) -> bool:
    """Return whether a module uses one of the decorators where its import executes it.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it cannot be parsed.
    """
    if not _LIKELY.search(source):
        return False
    nodes = list(_executed(ast.parse(source)))
    known: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                known[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [(alias.name, alias.asname or alias.name) for alias in node.names]
            every = [(name, name) for name in DECORATORS] if names == [("*", "*")] else names
            known |= {called: f"{node.module}.{name}" for name, called in every}
    return any(_is_decorator(_dotted(node, known)) for node in nodes if isinstance(node, ast.Name | ast.Attribute))


def _executed(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes outside of functions, and the decorators of functions."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            left += node.decorator_list
        elif not isinstance(node, ast.Lambda):
            left += ast.iter_child_nodes(node)


def _dotted(node: ast.expr, known: dict[str, str]) -> str:
    """Return the path of what an expression such as `mq_django.task` names; "" of any other."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([known[node.id], *reversed(names)]) if isinstance(node, ast.Name) and node.id in known else ""


def _is_decorator(path: str) -> bool:
    return path.startswith(_PREFIXES) and path.rpartition(".")[2] in DECORATORS
