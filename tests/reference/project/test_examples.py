"""The examples of a page run in one namespace, as a module."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from sybil.document import Document
from sybil.parsers.myst import PythonCodeBlockParser

from mq_django import registry

FOLDER = Path(os.environ["REFERENCE"])
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if "\n```python\n" in path.read_text(encoding="utf-8"))
#: These show what tests in a transaction do. The others publish as code outside of `atomic()` does.
IN_A_TRANSACTION = {"testing", "triggers"}


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.django_db(transaction=page not in IN_A_TRANSACTION)) for page in PAGES],
)
def test_examples(page, mq, monkeypatch):
    # The handlers of a page are not those of the next one.
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    for name in ("_starts", "_schedules", "_kinds"):
        monkeypatch.setattr(registry, name, {})
    path = FOLDER / f"{page}.md"
    module = ModuleType(f"examples_of_{page}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    document = Document.parse(str(path), PythonCodeBlockParser())
    module.mq = mq
    document.namespace = vars(module)
    for example in document.examples():
        example.evaluate()
