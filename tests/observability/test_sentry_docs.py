"""The tables of docs/sentry.md."""

import re
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("sentry_sdk")

PAGE = (Path(__file__).parent.parent.parent / "docs" / "sentry.md").read_text(encoding="utf-8")


def test_every_middleware_has_its_row():
    names = import_module("mq_django.observability.sentry").__all__
    assert re.findall(r"^- `(\w+)`: ", PAGE, re.M) == names


def test_every_tag_has_its_row():
    tags = import_module("mq_django.observability.sentry_events").TAGS
    assert re.findall(r"^- `(mq\.\w+)`: ", PAGE, re.M) == list(tags)
