"""Counts in texts have plural forms."""

import ast
from pathlib import Path

import mq_django

#: Texts with a count and without plural forms: the noun is a unit, or there is none.
ALLOWED = {
    "%(count)s %%",
    "%(count)s KiB",
    "%(count)s d",
    "%(count)s h",
    "%(count)s in %(time)s",
    "%(count)s min",
    "%(count)s more",
    "%(count)s ms",
    "%(count)s of %(total)s",
    "%(count)s of %(total)s paused",
    "%(count)s s",
    "%(count)s/h",
    "%(count)s/min",
    "%(count)s/s",
    "Examples: %(shown)s of %(count)s",
    "Handled in the last %(minutes)s minutes: %(count)s",
    "Published in the last %(minutes)s minutes: %(count)s",
    "Scanned %(scanned)s, %(count)s/s, about %(time)s left.",
    "and %(count)s more",
    "at least %(count)s",
    "more than %(count)s",
    "not started: %(count)s",
    "not started: %(count)s, oldest: %(time)s",
    "over %(count)s",
    "set aside: %(count)s",
}


def texts():
    """Yield the texts that are marked for translation without plural forms, with the files that have them."""
    folder = Path(mq_django.__file__).parent
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                first = node.args[0]
                if node.func.id in ("_", "gettext_lazy") and isinstance(first, ast.Constant):
                    yield str(first.value), path.name


def test_texts_with_counts_have_plural_forms():
    found = {(text, name) for text, name in texts() if "%(count)s" in text}
    assert {each for each in found if each[0] not in ALLOWED} == set()
    assert ALLOWED - {text for text, _ in found} == set()
