"""The import contract: folders are layers, imports point up the list, never down and never round."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.syntax_trees import children_of, without_collector

ROOT = Path(__file__).parent.parent
PACKAGE = "mq_django"

#: Lowest first. A part may import itself and the parts before it.
INNER = [
    *("errors", "core"),
    *("signals", "conf", "registry", "discovery", "middleware", "models"),
    *("transport", "stores"),
    "inbox",
    *("outbox", "producers", "rsmq", "inspector"),
    "consumers",
]

#: What is built on all of that; nothing below imports an edge.
EDGES = [
    "inspect",
    *("task_backend", "workflows", "triggers", "rsmq", "metrics", "observability", "checks", "testing", "migrations"),
    *("views", "templatetags"),
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
    "admin": ["ui", ""],
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
    "mq_django.transport.private_server",
    "mq_django.transport.guard_process",
)


class Module:
    """One file of the package, and what it imports."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.part = name.split(".")[1] if "." in name else ""
        #: Each dotted name that an import statement asks for, wherever it stands.
        self.imports: list[str] = []
        #: Where something is imported inside a function, for type checkers only, or by a name in a string.
        self.hidden: list[str] = []
        #: What Windows lacks, unless `hasattr` asks for it first.
        self.posix: list[str] = []
        self._read(ast.parse(text), frozenset())

    def _read(self, node: ast.AST, inside: frozenset[str]) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                inside |= {"function"}
            case ast.If():
                inside |= {"TYPE_CHECKING", "hasattr"} & _names(node.test)
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                if "hasattr" not in inside and name in POSIX_NAMES.get(module, ()):
                    self.posix.append(f"{module}.{name}")
            case ast.Call(args=[asked, *_]):
                if _names(node.func) & {"import_module", "__import__"} and PACKAGE in ast.unparse(asked):
                    self.hidden.append(f"line {node.lineno}")
            case ast.ImportFrom() | ast.Import():
                found = list(_asked_for(node))
                self.imports += found
                ours = any(dotted.startswith((".", PACKAGE)) for dotted in found)
                if "function" in inside or ("TYPE_CHECKING" in inside and ours):
                    self.hidden.append(f"line {node.lineno}")
                self.posix += filter(_is_posix, found)
        for each in children_of(node):
            self._read(each, inside)


def _names(node: ast.AST) -> set[str]:
    return {getattr(each, "id", getattr(each, "attr", "")) for each in ast.walk(node)}


def _asked_for(node: ast.ImportFrom | ast.Import) -> Iterator[str]:
    before = f"{'.' * node.level}{node.module or ''}." if isinstance(node, ast.ImportFrom) else ""
    yield from (f"{before}{alias.name}" for alias in node.names)


def _is_posix(dotted: str) -> bool:
    module, _, name = dotted.partition(".")
    return module in POSIX_MODULES or name in POSIX_NAMES.get(module, ())


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


def violations(sources: dict[str, str]) -> list[str]:
    """Return a sentence for each breach of the contract in the package: the text of each file, by its path."""
    modules = {}
    with without_collector():
        for path, text in sources.items():
            name = f"{PACKAGE}.{path.removesuffix('.py').replace('/', '.')}".removesuffix(".__init__")
            modules[name] = Module(name, text)
    found = []
    graph: dict[str, set[str]] = {}
    # The package's own __init__ stands outside: a table of names, which nothing inside may ask for one. The version
    # is no such name: it stands there because packaging reads it there.
    for module in (m for m in modules.values() if m.part):
        if module.part not in ORDER:
            found.append(f"{module.name}: {module.part} has no place in the order")
            continue
        found += [f"{module.name}: hidden import, {where}" for where in module.hidden]
        if not module.name.startswith(POSIX):
            found += [f"{module.name}: Windows has no {name}" for name in module.posix]
        for dotted in module.imports:
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
    root = ROOT / PACKAGE
    sources = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in sorted(root.rglob("*.py"))}
    assert len(sources) > 250
    assert violations(sources) == [], (
        "Whoever reads a layer needs to know only those below it: see docs/architecture.md"
    )


#: Trees that keep the contract.
GOOD = [
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
]
#: What may not import what.
APART = [
    *(("errors", "core.keys"), ("stores.a", "consumers.b"), ("producers.a", "inspector"), ("inspector.a", "producers")),
    *(("consumers.a", "inspector"), ("consumers.a", "apps"), ("triggers", "checks"), ("apps", "admin")),
    *(("consumers.worker.a", "consumers.supervisor.b"), ("admin.ui.a", "admin.b")),
]
#: Modules that break the contract once, and what is said.
BAD = [
    ("conf", "from mq_django import queues", "takes mq_django.queues from the package instead of its module"),
    ("core.a", "from . import b", "write imports in full, not ..b"),
    ("core.a", "from django.conf import settings", "core does without django"),
    ("admin.a", "import redis", "admin does without redis"),
    ("transport.a", "import fcntl", "Windows has no fcntl"),
    ("core.a", "import os\nos.register_at_fork()", "Windows has no os.register_at_fork"),
    ("stores.a", "from select import poll", "Windows has no select.poll"),
    ("helpers", "", "helpers has no place in the order"),
    ("core.a", "def f():\n    import json", "hidden import, line 2"),
    ("core.a", "class A:\n    async def f(self):\n        from json import loads", "hidden import, line 3"),
    ("conf", "if TYPE_CHECKING:\n    from mq_django.errors import MQError", "hidden import, line 2"),
    ("core.a", "if typing.TYPE_CHECKING:\n    import mq_django.errors", "hidden import, line 2"),
    ("core.a", "from importlib import import_module\nx = import_module('mq_django.conf')", "hidden import, line 2"),
    *((importer, f"import mq_django.{other}", f"may not import mq_django.{other}") for importer, other in APART),
]


def judged(files: dict[str, str]) -> list[str]:
    return violations({"__init__.py": '__version__ = "1"', **files})


def test_a_tree_that_keeps_the_contract_passes():
    assert [(files, judged(files)) for files in GOOD if judged(files)] == []


def test_a_breach_is_named():
    others = {f"{other.replace('.', '/')}.py": "" for _, other in [*APART, ("conf", "errors")]}
    found = [(module, judged(others | {f"{module.replace('.', '/')}.py": source})) for module, source, _ in BAD]
    assert found == [(module, [f"mq_django.{module}: {sentence}"]) for module, _, sentence in BAD]


def test_a_round_is_found():
    for way_back in ("import mq_django.core.b", "if TYPE_CHECKING:\n    from mq_django.core import b"):
        found = judged({"core/a.py": way_back, "core/b.py": "from mq_django.core.a import name"})
        (round_,) = [sentence for sentence in found if sentence.startswith("round: ")]
        assert set(round_.removeprefix("round: ").split(" -> ")) == {"mq_django.core.a", "mq_django.core.b"}
