"""docs/howto/: its contents, its boxes, and a page for each of the troubles that users of queues report."""

import re

from tests.shell import ROOT

DOCS = ROOT / "docs"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((DOCS / "howto").glob("*.md"))}
INDEX = PAGES.pop("index")
BOX = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Python and commands are run by test_examples.py, and data is checked by test_data.py.
LANGUAGES = {"python", "console", "yaml", "json"}

#: What users of other queues complain about most, and the page that answers it.
ANSWERS = {
    "a message that is delayed for long runs several times": "howto/delay-and-cancel",
    "a long task is delivered again while it runs": "howto/long-tasks",
    "a killed worker or a deploy loses a job": "howto/deploy-without-losing-work",
    "a worker lives and fetches nothing after a reconnect": "howto/redis-outages",
    "a task runs before the commit, or after a rollback": "howto/run-after-commit",
    "no Redis Cluster": "howto/redis-cluster",
    "a crash between commit and publish": "howto/crash-after-commit",
    "tasks are not retried": "howto/retry",
    "failures cannot be searched and retried": "howto/dead-letters",
    "thousands of failures are tedious": "howto/dead-letters",
    "several schedulers fire twice": "howto/schedules-without-duplicates",
    "many delayed messages fill the memory of workers": "howto/delay-and-cancel",
    "rate limits hold for one worker only": "howto/limit-rates",
    "one tenant holds up the others": "howto/share-fairly",
    "the memory of Redis grows": "howto/memory-of-redis",
    "asyncio": "howto/asyncio",
    "why is it stalled?": "howto/why-does-it-not-run",
    "a delayed job cannot be cancelled or moved": "howto/delay-and-cancel",
    "a dead-letter queue without tools": "howto/dead-letters",
    "priorities do not behave": "howto/priorities",
    "stale connections to the database": "howto/database-connections",
    "a stop on Kubernetes costs an attempt": "howto/deploy-without-losing-work",
    "tests that run tasks at the call hide what happens": "testing",
    "all may see everything in the admin": "howto/who-may-do-what",
    "arguments show secrets": "howto/secrets-in-arguments",
    "a rolling deploy discards unknown tasks": "howto/rolling-deploys",
}


def test_each_page_is_in_the_table_of_contents_and_in_the_list():
    contents = re.search(r"```{toctree}\n.*?\n\n(.*?)```", INDEX, re.DOTALL)[1].split()
    assert sorted(contents) == sorted(PAGES)
    listed = dict(re.findall(r"^- \[(.+?)\]\(([\w-]+)\.md\)", INDEX, re.MULTILINE))
    titles = {re.match(r"# (.+)\n", text)[1]: page for page, text in PAGES.items()}
    assert listed == titles


def test_each_trouble_has_a_page_that_the_list_names():
    missing = {page for page in ANSWERS.values() if not (DOCS / f"{page}.md").exists()}
    links = {link.removeprefix("../") for link in re.findall(r"\((\S+)\.md\)", INDEX)}
    assert missing == set()
    assert {page.removeprefix("howto/") for page in ANSWERS.values()} <= links


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
