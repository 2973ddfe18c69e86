"""docs/reference/logs.md has each warning and error that is logged, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import mq_django

PACKAGE = Path(mq_django.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "reference" / "logs.md").read_text(encoding="utf-8")
LEVELS = {"warning", "error", "exception", "log"}
#: Records of what a finding or an error says, without words of their own; and the test kit.
SHORTEST = len("%s. Still trying.")


def logged() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if "testing" in path.parts:
            continue
        text = path.read_text(encoding="utf-8")
        if "logger." not in text:
            continue
        tree = ast.parse(text)
        named = constants(tree)
        for scope in ast.walk(tree):
            if isinstance(scope, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from texts(scope, named | constants(scope))


def constants(scope: ast.AST) -> dict[str, str]:
    """Return the texts that are assigned to a name."""
    return {
        node.targets[0].id: node.value.value
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def texts(scope: ast.AST, named: dict[str, str]) -> Iterator[str]:
    for call in ast.walk(scope):
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="logger"), attr=level), args=args) if level in LEVELS:
                for argument in args[:2] if level == "log" else args[:1]:
                    match argument:
                        case ast.Constant(value=str(text)):
                            yield text
                        case ast.Name(id=name) if name in named:
                            yield named[name]


def test_each_warning_and_error_is_listed_and_no_other():
    listed = re.findall(r"^- (?:WARNING|ERROR)[^`]* `(.+?)`(?=:|$)", PAGE, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert sorted(listed) == sorted({text for text in logged() if len(text) >= SHORTEST or text in listed})
