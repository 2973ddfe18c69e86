"""The import contract: folders are layers, imports point up the list, never down and never round."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = "mq_django"

#: Lowest first. A part may import itself and the parts before it.
INNER = [
    *("errors", "signals", "core"),
    *("conf", "registry", "middleware", "models"),
    *("transport", "stores"),
    "inbox",
    *("outbox", "producers", "rsmq", "inspector"),
    "consumers",
]

#: What is built on all of that; nothing below imports an edge.
EDGES = [
    *("task_backend", "workflows", "triggers", "rsmq", "metrics", "observability", "checks", "testing", "migrations"),
    *("admin", "management", "apps"),
]

#: The edges that Django itself loads. They mount the others, which do not know one another.
SHELLS = {"admin", "management", "apps"}

ORDER = [*INNER, *EDGES]

#: Parts that stand side by side: people look through the inspector, machines never do.
STRANGERS = [{"producers", "inspector"}, {"inspector", "consumers"}]

#: Edges that are built on another one.
BUILT_ON = {"workflows": {"task_backend"}}

#: Packages inside a part, lowest first; "" stands for the modules beside them.
INSIDE = {
    "consumers": ["", "worker", "supervisor"],
    "admin": ["ui", "messages", "dead_letters", "topics", "consumers", "workflows", "queues", ""],
}

#: Packages that a part must do without.
WITHOUT = {"core": {"django", "redis", "django_redis"}, "admin": {"redis", "django_redis"}}

#: Modules of Python's library that Windows lacks, and names that its modules lack there.
POSIX_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
POSIX_NAMES = {
    "os": {
        *("fork", "register_at_fork", "killpg", "setsid", "getuid", "geteuid", "getgid", "getpgid", "memfd_create"),
        *("sysconf", "uname", "getloadavg", "wait", "WNOHANG", "pidfd_open", "set_blocking", "O_CLOEXEC", "mkfifo"),
        *("sched_getaffinity", "nice", "chown", "fchmod", "setgid", "setuid", "eventfd", "sync"),
    },
    "select": {"poll", "epoll", "kqueue", "POLLIN"},
    "signal": {
        "SIGHUP",
        "SIGKILL",
        "SIGCHLD",
        "SIGUSR1",
        "SIGUSR2",
        "SIGSTOP",
        "SIGCONT",
        "alarm",
        "pause",
        "setitimer",
    },
    "socket": {"AF_UNIX", "send_fds", "recv_fds"},
    "time": {"clock_gettime", "tzset"},
}

#: What may use them: the embedded server, and `runconsumer`. All else works on Windows, too.
POSIX = (
    "mq_django.consumers",
    "mq_django.transport.embedded",
    "mq_django.transport.guard_process",
    "mq_django.transport.private_server",
    "mq_django.transport.servers",
)


class Module:
    """One file of the package, and what it imports."""

    def __init__(self, path: Path, root: Path) -> None:
        self.name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        self.part = self.name.split(".")[1] if "." in self.name else ""
        self.tree = ast.parse(path.read_text(encoding="utf-8"))

    def imports(self) -> Iterator[tuple[ast.stmt, str]]:
        """Yield each import statement, wherever it stands, with each dotted name it asks for."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                yield from ((node, f"{'.' * node.level}{node.module or ''}.{a.name}") for a in node.names)
            elif isinstance(node, ast.Import):
                yield from ((node, alias.name) for alias in node.names)

    def hidden_imports(self) -> Iterator[str]:
        """Yield what is imported inside a function, for type checkers only, or by a name in a string."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                inside = ast.walk(node)
                yield from (f"line {n.lineno}" for n in inside if isinstance(n, ast.Import | ast.ImportFrom))
            elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
                yield from (f"line {n.lineno}" for n in ast.walk(node) if _imports_ours(n))
            elif isinstance(node, ast.Call) and node.args:
                called = ast.unparse(node.func).split(".")[-1]
                if called in {"import_module", "__import__"} and PACKAGE in ast.unparse(node.args[0]):
                    yield f"line {node.lineno}"

    def posix_names(self) -> Iterator[str]:
        """Yield what Windows lacks, unless `hasattr` asks for it first."""
        asked = {
            id(inner)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.If) and "hasattr(" in ast.unparse(node.test)
            for inner in ast.walk(node)
        }
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name) or id(node) in asked:
                continue
            if node.attr in POSIX_NAMES.get(node.value.id, ()):
                yield f"{node.value.id}.{node.attr}"
        for _, dotted in self.imports():
            module, _, name = dotted.partition(".")
            if module in POSIX_MODULES or name in POSIX_NAMES.get(module, ()):
                yield dotted


def _imports_ours(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.level > 0 or (node.module or "").split(".")[0] == PACKAGE
    return isinstance(node, ast.Import) and any(a.name.split(".")[0] == PACKAGE for a in node.names)


def may_import(importer: str, imported: str) -> bool:
    """Return whether one part of the package may import another."""
    if importer == imported:
        return True
    if {importer, imported} in STRANGERS:
        return False
    if imported in EDGES:
        return (importer in SHELLS and imported not in SHELLS) or imported in BUILT_ON.get(importer, ())
    return ORDER.index(imported) < ORDER.index(importer)


def may_import_inside(importer: str, imported: str) -> bool:
    """Return whether one module of a part may import another of the same part."""
    part = importer.split(".")[1]
    if part not in INSIDE:
        return True
    packages = INSIDE[part]
    names = ([*name.split("."), ""][2] for name in (imported, importer))
    low, high = (packages.index(name if name in packages else "") for name in names)
    return low <= high


def violations(root: Path) -> list[str]:
    """Return a sentence for each breach of the contract in root/mq_django."""
    modules = {m.name: m for m in (Module(path, root) for path in sorted((root / PACKAGE).rglob("*.py")))}
    found = []
    graph: dict[str, set[str]] = {}
    # The package's own __init__ stands outside: a table of names, which nothing inside may ask for one. The version
    # is no such name: it stands there because packaging reads it there.
    for module in (m for m in modules.values() if m.part):
        if module.part not in ORDER:
            found.append(f"{module.name}: {module.part} has no place in the order")
            continue
        found += [f"{module.name}: hidden import, {where}" for where in module.hidden_imports()]
        if not module.name.startswith(POSIX):
            found += [f"{module.name}: Windows has no {name}" for name in module.posix_names()]
        for _, dotted in module.imports():
            target = resolve(dotted, modules)
            found += _breaches(module, dotted, target)
            if target:
                graph.setdefault(module.name, set()).add(target)
    try:
        TopologicalSorter({name: others - {name} for name, others in graph.items()}).prepare()
    except CycleError as error:
        found.append("round: " + " -> ".join(error.args[1]))
    return found


def resolve(dotted: str, modules: dict[str, Module]) -> str | None:
    """Return the module of ours that a dotted name leads to: itself, or the one that it is a name of."""
    while dotted and dotted not in modules:
        dotted = dotted.rpartition(".")[0]
    return dotted or None


def _breaches(module: Module, dotted: str, target: str | None) -> Iterator[str]:
    if dotted.startswith("."):
        yield f"{module.name}: write imports in full, not {dotted}"
    elif target == PACKAGE and dotted != f"{PACKAGE}.__version__":
        yield f"{module.name}: takes {dotted} from the package instead of its module"
    elif target and target != PACKAGE:
        part = target.split(".")[1]
        if (part == module.part and not may_import_inside(module.name, target)) or (
            part in ORDER and not may_import(module.part, part)
        ):
            yield f"{module.name}: may not import {target}"
    elif dotted.split(".")[0] in WITHOUT.get(module.part, set()):
        yield f"{module.name}: {module.part} does without {dotted.split('.')[0]}"


def test_the_package_keeps_the_contract():
    assert violations(ROOT) == []


def test_the_contract_has_something_to_judge():
    assert len(list((ROOT / PACKAGE).rglob("*.py"))) > 3


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, source in files.items():
        path = root / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    (root / PACKAGE / "__init__.py").write_text('__version__ = "1"\n', encoding="utf-8")
    return root


@pytest.mark.parametrize(
    "files",
    [
        {"errors.py": "", "core/keys.py": "from mq_django.errors import MQError"},
        {"metrics.py": "from mq_django import __version__"},
        {"core/keys.py": "", "stores/stream.py": "from mq_django.core import keys"},
        {"core/__init__.py": "", "core/a.py": "import mq_django.core.b", "core/b.py": ""},
        {"checks.py": "", "apps.py": "from mq_django import checks"},
        {"inspector/__init__.py": "", "admin/views.py": "from mq_django.inspector import actions"},
        {"conf.py": "from django.conf import settings", "transport/connections.py": "import redis"},
        {"stores/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import redis"},
        {"registry.py": "from importlib import import_module\ndef load(path): return import_module(path)"},
        {"migrations/a.py": "import mq_django.models", "models.py": ""},
        {"transport/guard_process.py": "import fcntl", "consumers/a.py": "import signal\nx = signal.SIGHUP"},
        {"consumers/supervisor/a.py": "import mq_django.consumers.worker.b", "consumers/worker/b.py": ""},
        {"consumers/worker/a.py": "import mq_django.consumers.b", "consumers/b.py": ""},
        {"core/ids.py": "import os\nif hasattr(os, 'register_at_fork'):\n    os.register_at_fork(before=print)"},
    ],
)
def test_a_tree_that_keeps_the_contract_passes(tmp_path, files):
    assert violations(tree(tmp_path, files)) == []


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (
            {"errors.py": "import mq_django.core.keys", "core/keys.py": ""},
            "mq_django.errors: may not import mq_django.core.keys",
        ),
        (
            {"stores/a.py": "from mq_django.consumers import b", "consumers/b.py": ""},
            "mq_django.stores.a: may not import mq_django.consumers.b",
        ),
        (
            {"producers/a.py": "import mq_django.inspector", "inspector/__init__.py": ""},
            "mq_django.producers.a: may not import mq_django.inspector",
        ),
        (
            {"inspector/a.py": "import mq_django.producers", "producers/__init__.py": ""},
            "mq_django.inspector.a: may not import mq_django.producers",
        ),
        (
            {"consumers/a.py": "import mq_django.inspector", "inspector/__init__.py": ""},
            "mq_django.consumers.a: may not import mq_django.inspector",
        ),
        (
            {"consumers/a.py": "import mq_django.apps", "apps.py": ""},
            "mq_django.consumers.a: may not import mq_django.apps",
        ),
        (
            {"triggers.py": "import mq_django.checks", "checks.py": ""},
            "mq_django.triggers: may not import mq_django.checks",
        ),
        (
            {"apps.py": "import mq_django.admin", "admin/__init__.py": ""},
            "mq_django.apps: may not import mq_django.admin",
        ),
        (
            {"conf.py": "from mq_django import queues"},
            "mq_django.conf: takes mq_django.queues from the package instead of its module",
        ),
        (
            {"core/a.py": "from . import b", "core/b.py": ""},
            "mq_django.core.a: write imports in full, not ..b",
        ),
        ({"core/a.py": "from django.conf import settings"}, "mq_django.core.a: core does without django"),
        ({"admin/a.py": "import redis"}, "mq_django.admin.a: admin does without redis"),
        ({"transport/a.py": "import fcntl"}, "mq_django.transport.a: Windows has no fcntl"),
        ({"core/a.py": "import os\nos.register_at_fork()"}, "mq_django.core.a: Windows has no os.register_at_fork"),
        ({"stores/a.py": "from select import poll"}, "mq_django.stores.a: Windows has no select.poll"),
        (
            {"consumers/worker/a.py": "import mq_django.consumers.supervisor.b", "consumers/supervisor/b.py": ""},
            "mq_django.consumers.worker.a: may not import mq_django.consumers.supervisor.b",
        ),
        (
            {"admin/ui/a.py": "import mq_django.admin.b", "admin/b.py": ""},
            "mq_django.admin.ui.a: may not import mq_django.admin.b",
        ),
        ({"helpers.py": ""}, "mq_django.helpers: helpers has no place in the order"),
        (
            {"core/a.py": "def f():\n    import json"},
            "mq_django.core.a: hidden import, line 2",
        ),
        (
            {"core/a.py": "class A:\n    async def f(self):\n        from json import loads"},
            "mq_django.core.a: hidden import, line 3",
        ),
        (
            {"conf.py": "if TYPE_CHECKING:\n    from mq_django.errors import MQError", "errors.py": ""},
            "mq_django.conf: hidden import, line 2",
        ),
        (
            {
                "core/a.py": "if typing.TYPE_CHECKING:\n    import mq_django.errors",
                "errors.py": "",
            },
            "mq_django.core.a: hidden import, line 2",
        ),
        (
            {"core/a.py": "from importlib import import_module\nx = import_module('mq_django.conf')"},
            "mq_django.core.a: hidden import, line 2",
        ),
    ],
)
def test_a_breach_is_named(tmp_path, files, sentence):
    assert violations(tree(tmp_path, files)) == [sentence]


@pytest.mark.parametrize("way_back", ["import mq_django.core.b", "if TYPE_CHECKING:\n    from mq_django.core import b"])
def test_a_round_is_found(tmp_path, way_back):
    files = {"core/a.py": way_back, "core/b.py": "from mq_django.core.a import name"}
    rounds = [found for found in violations(tree(tmp_path, files)) if found.startswith("round: ")]
    assert len(rounds) == 1
    assert {"mq_django.core.a", "mq_django.core.b"} == set(rounds[0].removeprefix("round: ").split(" -> "))
