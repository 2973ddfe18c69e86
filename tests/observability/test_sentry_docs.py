"""The examples and tables of docs/sentry.md."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from mq_django.middleware import async_handling_chain, handling_chain, publishing_chain

sentry_sdk = pytest.importorskip("sentry_sdk")

PAGE = (Path(__file__).parent.parent.parent / "docs" / "sentry.md").read_text(encoding="utf-8")


def example(name):
    return re.search(rf"<!-- try: {name} -->\n```python\n(.*?)```", PAGE, re.S)[1]


def test_the_settings_give_each_middleware_its_place(mq_settings, monkeypatch):
    initialised, found = {}, {}
    monkeypatch.setattr(sentry_sdk, "init", initialised.update)
    exec(example("settings"), found)
    assert set(initialised) == {"dsn", "traces_sample_rate"}
    mq_settings(**found["MQ_DJANGO"])
    chains = [chain() for chain in (handling_chain, async_handling_chain, publishing_chain)]
    assert None not in chains


def test_every_python_box_is_tried():
    assert PAGE.count("```python") == PAGE.count("<!-- try: ")


def test_every_middleware_has_its_row():
    names = import_module("mq_django.observability.sentry").__all__
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.M) == names


def test_every_tag_has_its_row():
    tags = import_module("mq_django.observability.sentry_events").TAGS
    assert re.findall(r"^\| `(mq\.\w+)` \|", PAGE, re.M) == list(tags)


def test_the_sampler_chooses_by_queue():
    found = {}
    exec(example("sampler"), found)
    assert [found["traces_sampler"]({"mq_django": {"queue": queue}}) for queue in ("emails", "others")] == [0.01, 0.1]
    assert found["traces_sampler"]({}) == 0.1
