"""`manage.py mq help`: the pages of the documentation on a terminal."""

import pytest
from django.core.management import CommandError, call_command

from mq_django.inspector.doctor.report import CODES
from mq_django.management import verbs


@pytest.fixture
def helped(capsys):
    def run(*arguments):
        call_command("mq", "help", *arguments)
        return capsys.readouterr().out

    return run


def test_each_code_of_the_doctor_has_a_section(helped):
    assert all(helped(code).startswith(f"### {code}\n") for code in CODES)


def test_a_section_ends_where_the_next_one_begins(helped):
    assert "mq_django.E003" in (text := helped("e003"))
    assert "mq_django.E004" not in text


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("settings", "# Settings"),
        ("docs/settings.md#modules", "## Modules"),
        ("howto/priorities", "# How do I let urgent messages go first?"),
        ("mq_django.E001", "### mq_django.E001"),
    ],
)
def test_a_page_and_a_section_are_named_as_in_a_link_to_it(helped, name, title):
    assert helped(name).startswith(title)


def test_a_comment_in_a_box_is_no_section(helped, tmp_path, monkeypatch):
    page = "# Page\n\n```sh\n# not a title\n```\n\nThe end.\n"
    (tmp_path / "page.md").write_text(page, encoding="utf-8")
    monkeypatch.setattr(verbs, "FOLDERS", (tmp_path / "absent", tmp_path))
    assert helped("page") == page


def test_without_a_name_it_lists_the_pages(helped):
    assert "howto/priorities " in (lines := helped())
    assert "settings " in lines


def test_what_is_not_there_is_an_error_with_what_may_be_meant(helped):
    with pytest.raises(CommandError, match=r"nothing named setings\. Did you mean settings"):
        helped("setings")
