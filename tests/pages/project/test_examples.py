"""The examples of a page run in one namespace, as a module. Its commands run after the examples that precede them.

A comment of a page that begins with `invisible-code-block: python` runs, too: it has what an example needs and a reader
has anyway, or what has come of the example. `fixture(name)` gives it a fixture of pytest.
"""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from console import run_commands
from django.core.checks import ERROR, run_checks
from django.db.models import signals
from django.dispatch import Signal
from sybil.document import Document
from sybil.parsers.myst import CodeBlockParser, PythonCodeBlockParser

from mq_django import registry

DOCS = Path(os.environ["DOCS"])
PAGES = os.environ["PAGES"].split()
#: These show what tests in a transaction do. The others publish as code outside of `atomic()` does.
IN_A_TRANSACTION = {"reference/testing", "reference/triggers", "howto/idempotent-handlers"}
#: Those of models, to which triggers are connected.
SIGNALS = [signal for signal in vars(signals).values() if isinstance(signal, Signal)]
#: What a box may set. Of queues and topics there are those of all boxes.
SETTINGS = ("MQ_DJANGO", "TASKS", "CACHES")


def use_settings(settings, namespace):
    """Let the project have the settings that a box has just assigned, in which the checks find no error."""
    shown = {name: namespace.pop(name) for name in SETTINGS if name in namespace}
    if "MQ_DJANGO" in shown:
        before, now = settings.MQ_DJANGO, shown["MQ_DJANGO"]
        both = {kind: {**before[kind], **now.get(kind, {})} for kind in ("QUEUES", "TOPICS")}
        shown["MQ_DJANGO"] = {**before, **now, **both}
    for name, value in shown.items():
        setattr(settings, name, value)
    if shown:
        assert [str(message) for message in run_checks(tags=["mq_django"]) if message.level >= ERROR] == []


@pytest.fixture(autouse=True)
def _own_receivers(monkeypatch):
    """Disconnect what a page has connected to signals: other pages save models, too."""
    with monkeypatch.context() as patched:
        for signal in SIGNALS:
            patched.setattr(signal, "receivers", list(signal.receivers))
        yield
    for signal in SIGNALS:
        signal.sender_receivers_cache.clear()


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.django_db(transaction=page not in IN_A_TRANSACTION)) for page in PAGES],
)
def test_examples(page, request, settings, monkeypatch):
    # The handlers of a page are not those of the next one.
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    for name in ("_starts", "_schedules", "_kinds"):
        monkeypatch.setattr(registry, name, {})
    module = ModuleType(f"examples_of_{page.rpartition('/')[2].replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    parsers = (PythonCodeBlockParser(), CodeBlockParser("console", run_commands))
    document = Document.parse(str(DOCS / f"{page}.md"), *parsers)
    document.namespace = vars(module)
    module.mq, module.fixture = request.getfixturevalue("mq"), request.getfixturevalue
    for example in document.examples():
        example.evaluate()
        use_settings(settings, document.namespace)
