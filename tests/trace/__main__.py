"""`python -m tests.trace [--base COMMIT|FOLDER]`: print how many modules each action passes, and which."""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mq_django.transport.private_server import PrivateServer
from tests.compat.versions import OLD_COMMIT, ROOT, NoHistory, export
from tests.trace.paths import ACTIONS, Modules, paths

#: Messages of each kind that are traced.
MESSAGES = 15


def trace(tree: Path, folder: Path, *, messages: int = MESSAGES) -> dict[str, Modules]:
    """Return the path of each action through the package in `tree`; `folder` takes what was recorded.

    Raises:
        RuntimeError: the package could not be traced; the text is what it wrote.
    """
    folder.mkdir()
    with PrivateServer() as server:
        done = subprocess.run(
            [sys.executable, "-m", "tests.trace.program", str(messages)],
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "tests.trace.project.settings",
                # The package from its own tree, the tests from here.
                "PYTHONPATH": os.pathsep.join([str(tree), str(ROOT)]),
                "MQ_TRACE_CONNECTION": server.url,
                "MQ_TRACE_FOLDER": str(folder),
            },
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(done.stdout)
    return paths(folder)


def report(columns: Mapping[str, Mapping[str, Modules]]) -> Iterator[str]:
    """Yield a table of the numbers of modules, and the modules with their functions."""
    yield f"{'modules':<16}" + "".join(f"{label:>12}" for label in columns)
    for action in ACTIONS:
        yield f"{action:<16}" + "".join(f"{len(found[action]):>12}" for found in columns.values())
    for action in ACTIONS:
        for label, found in columns.items():
            yield f"\n{action}, {label}:"
            yield from (f"  {module}: {', '.join(functions)}" for module, functions in found[action].items())


def main(arguments: Sequence[str] | None = None) -> int:
    """Trace both trees, and print the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.trace", description=__doc__)
    parser.add_argument("--base", default=OLD_COMMIT, help="The older tree: a commit, or a folder with an mq_django.")
    base = parser.parse_args(arguments).base
    with tempfile.TemporaryDirectory(prefix="mq-trace-") as name:
        folder, tree = Path(name), Path(base).resolve()
        if not tree.is_dir():
            tree = folder / "base"
            try:
                export(base, tree)
            except NoHistory as error:
                sys.exit(str(error))
        found = {
            f"{base[:8]}": trace(tree, folder / "base-events"),
            "this tree": trace(ROOT, folder / "our-events"),
        }
    sys.stdout.writelines(f"{line}\n" for line in report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
