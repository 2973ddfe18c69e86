"""The pages of the documentation."""

import re
from dataclasses import fields
from xml.etree import ElementTree

from django.dispatch import Signal

from mq_django import signals
from mq_django.conf import QueueConfig, RsmqConfig, TopicConfig
from mq_django.core.options import options_of
from mq_django.core.retries import RetryPolicy
from mq_django.core.schedules import SCHEDULE_OPTIONS
from mq_django.triggers.declarations import KEYS
from tests.install.wheels import ROOT
from tests.option_tables import CONFIGS, PAGE, renewed, words
from tests.signal_docs import arguments_of
from tests.test_import_contract import INNER

PAGES = [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md", ROOT / "example_project" / "README.md"]
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}


def test_links_between_pages_lead_somewhere():
    links = [(page, target) for page, text in TEXTS.items() for target in re.findall(r"\]\(([^)#:]+)\)", text)]
    assert [(page, target) for page, target in links if not (page.parent / target).exists()] == []


SETTINGS = PAGE.read_text(encoding="utf-8")


def test_the_lists_of_options_say_what_the_configs_declare():
    assert renewed(SETTINGS) == SETTINGS, "run `make docs`"


def test_every_config_has_its_list():
    assert sorted(re.findall(r"<!-- options: (\w+) -->\n- ", SETTINGS)) == sorted(CONFIGS)


def test_options_that_a_queue_has_too_are_named_below_the_list():
    for marker, config, apart in (("topic", TopicConfig, set()), ("rsmq", RsmqConfig, {"STORE"})):
        below = re.search(rf"<!-- options: {marker} -->\n(?:(?:- |  ).*\n)+\nand ([^.]*?),\s+as of", SETTINGS)
        shared = set(options_of(config)) & set(options_of(QueueConfig))
        assert set(re.findall(r"`(\w+)`", below[1])) == shared - apart, marker


def test_the_arguments_of_a_retry_policy_are_listed_with_their_defaults():
    listed = re.findall(r"`(\w+)`(?: \(([^)]+)\))?", options_of(QueueConfig)["RETRY"].help_text.partition(":")[2])
    defaults = RetryPolicy()
    assert {name: shown for name, shown in listed if shown} == {
        "delay": words(defaults.delay),
        "factor": f"{defaults.factor:g}",
        "max_delay": "1 h",
        "jitter": str(defaults.jitter),
    }
    assert defaults.max_delay.total_seconds() == 3600
    assert {name for name, _ in listed} == {field.name for field in fields(RetryPolicy)}


def test_the_options_of_a_schedule_are_listed():
    help_text = options_of(CONFIGS["project"])["SCHEDULES"].help_text
    assert set(re.findall(r'`"(\w+)"`', help_text)) == set(SCHEDULE_OPTIONS)


def test_every_key_of_a_trigger_is_described():
    section = SETTINGS.partition("## Triggers without code")[2].partition("\n## ")[0]
    named = re.findall(r"^- (`.*?): ", section, flags=re.MULTILINE)
    assert {key for names in named for key in re.findall(r"`(\w+)`", names)} == KEYS


def test_files_that_a_page_names_are_there():
    folders = [ROOT, ROOT / "mq_django", ROOT / "mq_django" / "transport"]
    missing = []
    for page in (ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "docs" / "architecture.md"):
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        named = re.findall(r"`([\w./-]+/[\w.-]*|[\w-]+\.(?:py|lua|md|toml))`", text)
        missing += [(page, name) for name in named if not any((folder / name).exists() for folder in folders)]
        linked = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", text)
        missing += [(page, link) for link in linked if not (page.parent / link).exists()]
    assert missing == []


def test_the_picture_of_the_layers_has_each_of_them():
    picture = (ROOT / "docs" / "img" / "layers.svg").read_text(encoding="utf-8")
    shown = re.findall(r'class="code"[^>]*>([^<]*)', picture)
    named = [re.sub(r"\(.*?\)|/", "", line).split() for line in shown]
    places = {part: place for place, line in enumerate(named) for part in line}
    built = {
        path.stem for path in (ROOT / "mq_django").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert set(places) == built - {"__init__", "migrations"}
    # Each layer stands above those that it may import.
    assert [places[part] for part in INNER if part in places] == sorted(
        (places[part] for part in INNER if part in places), reverse=True
    )


def test_a_diagram_has_a_title_and_colours_for_a_dark_page_and_is_on_a_page_with_a_description():
    pages = "\n".join(TEXTS.values())
    space = "{http://www.w3.org/2000/svg}"
    for name in ("benchmarks", "inbox", "layers", "message", "outbox", "relay", "scaling"):
        picture = ElementTree.fromstring((ROOT / "docs" / "img" / f"{name}.svg").read_text(encoding="utf-8"))
        assert picture.findtext(f"{space}title"), name
        assert "prefers-color-scheme: dark" in picture.findtext(f"{space}style", ""), name
        assert re.search(rf"^!\[[^\]]+\]\((?:docs/)?img/{name}\.svg\)$", pages, re.MULTILINE), name


def test_every_signal_has_its_row_with_its_arguments():
    named = {
        name: arguments_of(value) - {"sender", "signal", "queue"}
        for name, value in vars(signals).items()
        if isinstance(value, Signal)
    }
    section = (ROOT / "docs" / "reference" / "signals.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", section, re.MULTILINE)
    assert {name: set(re.findall(r"\w+", arguments)) for name, arguments in rows} == named
