"""Each word of ours in the tables of docs/coming-from/ exists: names, arguments, settings and commands."""

import ast
import inspect
import re
import shlex
from dataclasses import is_dataclass
from functools import cache
from typing import Any

import pytest
from django.core.management import CommandError, CommandParser

import mq_django
from mq_django import testing, workflows
from mq_django.conf import QueueConfig, TopicConfig
from mq_django.core.options import options_of
from mq_django.management.commands import mq, runconsumer
from mq_django.task_backend.compat import TaskContext, TaskResult
from tests.coming_from.boxes import PAGES, page
from tests.option_tables import CONFIGS

#: What the names stand for that the tables use for an object of the reader's project.
STANDS_FOR = {
    "task": mq_django.MQTask,
    "queue": mq_django.Queue,
    "group": mq_django.Group,
    "message": mq_django.Message,
    "result": TaskResult,
    "context": TaskContext,
    "mq": testing.MQ,
    "flow": workflows.Flow,
    "run": workflows.Run,
    "step": workflows.Step,
    "schedules": type(mq_django.schedules),
    "MQTestMixin": testing.MQTestMixin,
    "mq_django": mq_django,
    **{name: getattr(workflows, name) for name in ("chain", "current_flow", "get_run", "parallel")},
}
#: What a call of a function returns, as far as a table goes on from it.
RETURNS = {
    "using": mq_django.MQTask,
    "add": workflows.Step,
    "chain": workflows.Workflow,
    "parallel": workflows.Workflow,
    "current_flow": workflows.Flow,
}
#: What a decorator and an item of a mapping are.
DECORATORS = {
    **{name: getattr(mq_django, name) for name in ("task", "handler", "subscriber", "on_signal")},
    "workflow": workflows.workflow,
}
ITEMS = {"queues": mq_django.Queue, "topics": mq_django.Topic}
SETTINGS = {*options_of(QueueConfig), *options_of(TopicConfig), *options_of(CONFIGS["project"]), "MQ_DJANGO", "TASKS"}
#: The code of ours in a row, before what is said about it.
WORDS = re.compile(r"`[^`]+`(?:(?:, | and )`[^`]+`)*")


def words(name: str) -> list[str]:
    """Return the code at the beginning of the second column of a page's table of words."""
    table = page(name).partition("## Words")[2].partition("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines() if line.startswith("|")]
    assert {len(row) for row in rows} == {2}, [row for row in rows if len(row) != 2]
    return [word for _, ours in rows[2:] for word in re.findall(r"`([^`]+)`", WORDS.match(ours.strip())[0])]


@cache
def parser_of(command: str) -> CommandParser:
    return {"mq": mq, "runconsumer": runconsumer}[command].Command().create_parser("manage.py", command)


def resolve(word: str) -> None:
    """Fail if there is no such thing."""
    setting = re.match(r'"?([A-Z][A-Z_]+)"?(: |\[|$)', word)
    if word.startswith("manage.py "):
        verb, *arguments = shlex.split(word.removeprefix("manage.py "))
        parser_of(verb).parse_args(arguments)
    elif setting:
        assert setting[1] in SETTINGS
    elif word.startswith("@"):
        decorator = ast.parse(word[1:], mode="eval").body
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        check_arguments(DECORATORS[ast.unparse(function)], decorator)
    else:
        meaning(ast.parse(word, mode="eval").body)


def meaning(node: ast.AST) -> Any:
    """Return what an expression names: of a call what RETURNS says, or nothing to go on from."""
    match node:
        case ast.Name(id=name):
            return STANDS_FOR[name] if name in STANDS_FOR else getattr(mq_django, name)
        case ast.Subscript(value=ast.Name(id=name)):
            return ITEMS[name]
        case ast.Attribute(value=value, attr=attribute):
            owner = meaning(value)
            if is_dataclass(owner) and attribute in inspect.get_annotations(owner):
                return None
            return getattr(owner, attribute)
        case ast.Call(func=function):
            called = meaning(function)
            check_arguments(called, node)
            return RETURNS.get(called.__name__)
    raise AssertionError(f"{ast.unparse(node)} is no name")


def check_arguments(called: Any, node: ast.AST) -> None:
    given = {keyword.arg for keyword in node.keywords} if isinstance(node, ast.Call) else set()
    parameters = inspect.signature(called).parameters.values()
    if not any(
        parameter.kind is parameter.VAR_KEYWORD and "Never" not in str(parameter.annotation) for parameter in parameters
    ):
        assert given <= {parameter.name for parameter in parameters}


def test_every_word_of_ours_exists(subtests):
    for name in PAGES:
        with subtests.test(name=name):
            found = words(name)
            assert len(found) > 20
            for word in found:
                try:
                    resolve(word)
                except (AssertionError, AttributeError, KeyError, SyntaxError, CommandError) as error:
                    pytest.fail(f"{name}: `{word}`: {error!r}")


def test_a_word_that_does_not_exist_is_found(subtests):
    for word in [
        "task.enqueue_all()",
        "task.using(countdown=1)",
        "manage.py mq drain",
        '"RATE": 1',
        "@task(acks_late=True)",
        "flow.link(a)",
    ]:
        with subtests.test(word=word), pytest.raises((AssertionError, AttributeError, KeyError, CommandError)):
            resolve(word)
