"""docs/howto/: its contents, its boxes, and what each of them has."""

import re

from tests.shell import ROOT

DOCS = ROOT / "docs"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((DOCS / "howto").glob("*.md"))}
INDEX = PAGES.pop("index")
BOX = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Python and commands are run by test_examples.py, and data is checked by test_data.py. tests/e2e/test_streams.py has
#: the others in a browser.
LANGUAGES = {"python", "console", "yaml", "json", "html", "js"}


def test_each_page_is_in_the_table_of_contents_and_in_the_list():
    contents = re.search(r"```{toctree}\n.*?\n\n(.*?)```", INDEX, re.DOTALL)[1].split()
    assert sorted(contents) == sorted(PAGES)
    listed = dict(re.findall(r"^- \[(.+?)\]\(([\w-]+)\.md\)", INDEX, re.MULTILINE))
    titles = {re.match(r"# (.+)\n", text)[1]: page for page, text in PAGES.items()}
    assert listed == titles


def test_each_page_answers_shows_fails_and_leads_on(subtests):
    for page in PAGES:
        with subtests.test(page=page):
            text = PAGES[page]
            assert text.startswith("# ")
            assert text.count("\n**Under failure:** ") == text.count("\n**Next:** ") == 1
            assert "\nassert " in text or "\n    assert " in text
            assert "skip" not in {
                word for comment in re.findall(r"<!--(.*?)-->", text, re.DOTALL) for word in comment.split()
            }


def test_each_box_is_in_a_language_that_is_checked(subtests):
    for page in PAGES:
        with subtests.test(page=page):
            boxes = BOX.findall(PAGES[page])
            assert len(boxes) * 2 == len(re.findall(r"^```", PAGES[page], re.MULTILINE))
            assert {language for language, _ in boxes} <= LANGUAGES
