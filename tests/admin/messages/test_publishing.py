"""A message is published, and a task run, by a form: checked before the question, and found by its link."""

import json
import shlex
import subprocess

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command

from mq_django import handler, inspect, inspector, queues, task
from mq_django.conf import get_config
from mq_django.core.redaction import REDACTED
from mq_django.inspector import message_views
from tests.admin.conftest import BASE
from tests.seeding import bury, dead_entry

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

FORM = f"{BASE}emails/publish/"


@handler("emails", "form.welcome")
def welcome(message):
    """Handle what the form publishes."""


@task(queue_name="emails")
def charge(user_id: int, note: str, amount: float = 1.5, *more, tags=None):
    """Take one parameter of each kind."""


CHARGE = charge.module_path


def publish(data, name="form.welcome", **options):
    return queues["emails"].publish(name, data, on_commit=False, **options)


def confirm(client, fields):
    """Send the form, and confirm the question; return its page and the one after it."""
    asked = client.post(FORM, fields)
    return asked.content.decode(), client.post(FORM, dict(asked.context["fields"]), follow=True)


def test_a_message_is_published_with_its_options_and_the_result_leads_to_it(operator):
    fields = {"name": "form.welcome", "data": '{"n": 1}', "key": "k", "priority": "5", "headers": '{"tenant": "a"}'}
    fields |= {"delay": "3600", "unique": "cart:7", "expires": "7200"}

    asked, done = confirm(operator, fields)

    assert "Publish message “form.welcome”?" in asked
    (row,) = inspect.messages("emails", "delayed", limit=5).rows
    assert (row.data, row.key, row.priority, dict(row.headers)) == ({"n": 1}, "k", 5, {"tenant": "a"})
    assert row.unique == "cart:7"
    page = done.content.decode()
    assert row.id in page
    assert f"{BASE}emails/message/delayed/" in page
    assert LogEntry.objects.get().change_message == f"Published message form.welcome as {row.id}"


def test_what_is_wrong_is_said_beside_its_field_and_what_was_typed_stays(operator, subtests):
    for fields, sentence in [
        ({"data": '{\n  "n": 1,,\n}'}, "This is not JSON. Line 2, column 10: "),
        ({"data": "NaN"}, "This is not JSON: "),
        ({"data": f'"{REDACTED}"'}, "Write its value."),
        ({"headers": '{"A": 1}'}, "A header"),
        ({"headers": "[1]"}, "Headers are a dict"),
        ({"delay": "soon"}, "This is not a number."),
        ({"delay": "1e400"}, "delay must be"),
        ({"priority": "500"}, "priority must be a whole number"),
        ({"unique": "x"}, "unique= needs delay="),
        ({"name": ""}, "name is 1 to"),
    ]:
        with subtests.test(fields=fields):
            page = operator.post(
                FORM, {"name": "form.welcome", "data": "1", "key": "typed", "confirmed": "yes", **fields}
            )
            assert page.status_code == 200
            assert sentence in page.content.decode().replace("&#x27;", "'")
            assert page.context["asked"]["key"] == "typed"
    assert inspector.queue("emails").ready == 0


def test_the_sample_is_the_last_message_of_the_name_for_who_may_see_data(operator, log_in):
    publish({"n": 1})
    publish(1, name="nobody.has.this")
    assert {"form.welcome", "nobody.has.this"} <= set(operator.get(FORM).context["handled"])
    found = operator.post(FORM, {"name": "form.welcome", "sample": "1", "key": "typed"})
    assert json.loads(found.context["asked"]["data"]) == {"n": 1}
    assert found.context["asked"]["key"] == "typed"
    assert "No message of this name" in operator.post(FORM, {"name": "other", "sample": "1"}).content.decode()
    blind = log_in("view_queue", "operate_queue")
    hidden = blind.post(FORM, {"name": "form.welcome", "sample": "1"})
    assert hidden.context["asked"].get("data") is None
    assert "You do not have permission to see message data." in hidden.content.decode()
    assert blind.get(FORM).status_code == 200


def test_a_message_is_published_again_and_the_question_shows_what_was_changed(operator, log_in):
    first = publish({"n": 1, "kept": True}, key="k")
    (row,) = operator.get(f"{BASE}emails/ready/").context["rows"]
    url = next(b["url"] for b in operator.get(row["url"]).context["buttons"] if "publish" in b.get("url", ""))
    form = operator.get(url)
    assert form.context["asked"]["key"] == "k"
    fields = {name: value for name, value in form.context["asked"].items() if value}
    asked, _done = confirm(operator, {**fields, "data": '{"n": 2, "kept": true}'})
    assert "<del><bdi>-  &quot;n&quot;: 1,</bdi>\n</del>" in asked
    assert "<ins><bdi>+  &quot;n&quot;: 2,</bdi>\n</ins>" in asked
    assert "Its data is that of the original." in operator.post(FORM, fields).content.decode()
    second = [found.id for found in inspect.messages("emails", "ready", limit=5).rows if found.id != first]
    assert len(second) == 1
    blind = log_in("view_queue", "operate_queue").get(url)
    assert not blind.context["asked"].get("data")


def test_a_task_is_run_by_the_parameters_of_its_function(operator):
    form = operator.get(FORM, {"task": CHARGE})
    assert [row["label"] for row in form.context["parameters"]] == [
        *("user_id: int", "note: str", "amount: float", "*more", "tags"),
    ]
    bad = operator.post(FORM, {"task": CHARGE, "p-user_id": "seven", "confirmed": "yes"}).content.decode()
    assert "This is not JSON. Line 1, column 1" in bad
    assert "This parameter has no default." in bad

    asked, done = confirm(operator, {"task": CHARGE, "p-user_id": "7", "p-note": "a b", "p-tags": '["x"]'})

    assert f"Run task “{CHARGE}”?" in asked
    assert done.status_code == 200
    (row,) = inspect.messages("emails", "ready", limit=5).rows
    assert (row.name, row.data["args"], row.data["kwargs"]) == (
        CHARGE,
        [],
        {"user_id": 7, "note": "a b", "tags": ["x"]},
    )


def test_a_task_that_is_not_there_is_an_error(operator):
    page = operator.post(FORM, {"task": "os.system", "p-command": "x", "confirmed": "yes"}).content.decode()
    assert "This task is not registered here." in page
    assert inspector.queue("emails").ready == 0


def test_only_tasks_are_offered_and_another_address_leads_back(operator):
    """A task has a second handler, for the steps of workflows that run it."""
    publish({}, name=f"step:{CHARGE}")
    offered = operator.get(FORM).content.decode()
    assert CHARGE in offered
    assert "step:" not in offered
    for name in (f"step:{CHARGE}", "nosuch", "form.welcome"):
        page = operator.get(FORM, {"task": name}, follow=True)
        assert "This task is not registered here." in page.content.decode()
        assert page.redirect_chain[0][0] == FORM


def test_an_edit_of_a_dead_letter_shows_its_changes_and_where_it_is_no_json(operator):
    bury("emails", "welcome", {"n": 1})
    url = f"{BASE}emails/dead/{dead_entry('emails')}/edit/"
    asked = operator.post(url, {"data": '{"n": 2}'}).content.decode()
    assert "<ins><bdi>+  &quot;n&quot;: 2</bdi>\n</ins>" in asked
    wrong = operator.post(url, {"data": '{"n": }'})
    assert "This is not JSON. Line 1, column 7" in wrong.content.decode()
    assert wrong.context["written"] == '{"n": }'


ODD = {"it's": 'a "b" $HOME `x` \\ zwölf\n\x07 *'}


def test_the_copied_commands_publish_the_same_message(operator, redis_client, django_capture_on_commit_callbacks):
    publish(ODD, key="user 7's", headers={"tenant": 'a"b'})
    (view,) = inspect.messages("emails", "ready", limit=5).rows

    assert json.loads(message_views.as_json(view))["data"] == ODD
    words = shlex.split(message_views.as_publish("emails", view))
    assert (words[:5], json.loads(words[5])) == (["manage.py", "mq", "publish", "emails", "form.welcome"], ODD)
    assert words[6:9] == ["--key", "user 7's", "--headers"]
    with django_capture_on_commit_callbacks(execute=True):
        call_command(*words[1:])
    _, third = inspect.messages("emails", "ready", limit=5).rows
    assert (third.data, third.key, dict(third.headers)) == (ODD, "user 7's", {"tenant": 'a"b'})
    command = message_views.as_xadd("emails", view)
    assert "\n" not in command
    redis_client.execute_command(*split_as_redis_cli(command))
    first, _, second = inspect.messages("emails", "ready", limit=5).rows
    assert (second.data, second.key, dict(second.headers)) == (first.data, first.key, dict(first.headers))
    assert get_config().queue("emails").keys.ready in command


def split_as_redis_cli(line):
    """Split a line as redis-cli does: in quotation marks a backslash escapes, and \\xHH is a byte."""
    words, word, quoted, at = [], b"", False, 0
    while at < len(line):
        character = line[at]
        if quoted and line.startswith("\\x", at):
            word, at = word + bytes([int(line[at + 2 : at + 4], 16)]), at + 4
            continue
        if quoted and character == "\\":
            word, at = word + line[at + 1].encode(), at + 2
            continue
        if character == '"':
            quoted = not quoted
        elif character == " " and not quoted:
            words, word = [*words, word], b""
        else:
            word += character.encode()
        at += 1
    return [*words, word]


def test_a_shell_reads_the_copied_command_as_it_was_meant(operator):
    publish(ODD)
    (view,) = inspect.messages("emails", "ready", limit=5).rows
    command = message_views.as_publish("emails", view).removeprefix("manage.py")
    run = subprocess.run(["sh", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True, timeout=10)
    assert json.loads(run.stdout.split(b"\0")[4]) == ODD


def test_copies_are_for_who_may_see_data_and_say_that_secrets_are_left_out(operator, viewer):
    publish({"password": "hunter2"})
    (row,) = operator.get(f"{BASE}emails/ready/").context["rows"]
    page = operator.get(row["url"])
    assert len(page.context["copies"]) == 3
    assert "Secrets are replaced by [redacted]" in page.content.decode()
    assert "hunter2" not in page.content.decode()
    assert "copies" not in viewer.get(row["url"]).context


def test_nothing_is_published_to_a_group_of_a_topic(operator):
    answer = operator.get(f"{BASE}orders:billing/publish/", follow=True)
    assert answer.redirect_chain
