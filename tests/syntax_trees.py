"""The syntax of files, for tests that are rules about code."""

import ast
import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def without_collector() -> Iterator[None]:
    """Parse in this block: a tree is many objects and no garbage, which would be searched again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def children_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what ast.iter_child_nodes() does, which takes several times as long."""
    for value in vars(node).values():
        if isinstance(value, list):
            yield from (each for each in value if isinstance(each, ast.AST))
        elif isinstance(value, ast.AST):
            yield value


def nodes_of(paths: Iterable[Path], *kinds: type[ast.AST]) -> list[tuple[Path, Any]]:
    """Return each node of these kinds with the path of its file."""
    found = []
    with without_collector():
        for path in paths:
            waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
            while waiting:
                node = waiting.pop()
                if isinstance(node, kinds):
                    found.append((path, node))
                waiting += children_of(node)
    return found
