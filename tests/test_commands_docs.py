"""docs/commands.md: every verb and option of the commands, and no others; its examples can be parsed."""

import re
import shlex

from mq_django.management.commands import mq
from tests.command_tables import PAGE, arguments, parsers, renewed

TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^\$ (?:.*\| )?manage\.py (.+?)(?: >.*)?$", TEXT, re.MULTILINE)


def test_the_tables_say_what_the_parsers_declare():
    assert renewed(TEXT) == TEXT, "run `make docs`"


def test_every_verb_and_action_has_its_table_and_no_other():
    tables = re.findall(r"<!-- command: ([\w ]+) -->\n\|", TEXT)
    assert sorted(tables) == sorted(set(parsers()) - {"mq"})


def test_every_verb_has_a_section_and_a_link_to_it():
    sections = re.findall(r"^### mq (\w+)$", TEXT, re.MULTILINE)
    assert sorted(sections) == sorted(mq.VERBS)
    assert sorted(re.findall(r"\[`(\w+)`\]\(#mq-\1\)", TEXT.partition("\n## ")[0])) == sorted(mq.VERBS)


def test_no_other_option_is_named():
    known = {option for parser in parsers().values() for action in parser._actions for option in action.option_strings}
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", TEXT)) <= known


def test_every_argument_has_a_help():
    missing = [(name, each.dest) for name, parser in parsers().items() for each in arguments(parser) if not each.help]
    assert missing == []


def test_each_example_can_be_parsed(subtests):
    for line in EXAMPLES:
        verb, *rest = shlex.split(line)
        with subtests.test(line):
            assert parsers()[verb].parse_args(rest)


def test_each_verb_has_an_example_or_is_dangerous():
    shown = {re.match(r"mq (\w+)", line)[1] for line in EXAMPLES if line.startswith("mq")}
    assert set(mq.VERBS) - shown == set()
