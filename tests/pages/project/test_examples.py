"""The examples of a page run in one namespace, as a module. Its commands run after the examples that precede them."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from console import run_commands
from django.conf import settings as django_settings
from sybil.document import Document
from sybil.parsers.myst import CodeBlockParser, PythonCodeBlockParser

from mq_django import registry

FOLDER = Path(os.environ["FOLDER"])
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if "\n```python\n" in path.read_text(encoding="utf-8"))
#: These show what tests in a transaction do. The others publish as code outside of `atomic()` does.
IN_A_TRANSACTION = {"testing", "triggers", "idempotent-handlers"}


def use_settings(settings, document):
    """Let the queues and topics of the page exist: those of boxes that begin with `MQ_DJANGO = `."""
    for example in document.examples():
        if str(example.parsed).startswith("MQ_DJANGO = "):
            example.evaluate()
            shown = document.namespace.pop("MQ_DJANGO")
            together = {**django_settings.MQ_DJANGO, **shown}
            together["QUEUES"] = {**django_settings.MQ_DJANGO["QUEUES"], **shown.get("QUEUES", {})}
            settings.MQ_DJANGO = together


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.django_db(transaction=page not in IN_A_TRANSACTION)) for page in PAGES],
)
def test_examples(page, request, settings, monkeypatch):
    # The handlers of a page are not those of the next one.
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    for name in ("_starts", "_schedules", "_kinds"):
        monkeypatch.setattr(registry, name, {})
    module = ModuleType(f"examples_of_{page.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    parsers = (PythonCodeBlockParser(), CodeBlockParser("console", run_commands))
    document = Document.parse(str(FOLDER / f"{page}.md"), *parsers)
    document.namespace = vars(module)
    use_settings(settings, document)
    module.mq = request.getfixturevalue("mq")
    for example in document.examples():
        example.evaluate()
