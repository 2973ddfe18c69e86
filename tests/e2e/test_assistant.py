"""A visitor reads the answer of the shop's assistant, although the tab is reloaded and the consumer is killed."""

import json
import os
import signal

from tests.e2e.conftest import playwright
from tests.waiting import PATIENCE, wait_until

QUESTION = "Do you have a mug, a kettle, a lamp, or a blanket?"
#: Keeps what the script of the page gets.
RECORD = "addEventListener('mq-chunk', event => (window.chunks ??= []).push(event.detail))"


def words(shop):
    """Return the words of the answer."""
    found = f"assistant.words_about({QUESTION!r})"
    return json.loads(shop.do(f"import json; from example_project.shop import assistant; print(json.dumps({found}))"))


def test_an_answer_goes_on_in_a_reloaded_tab_after_the_death_of_its_consumer(opened, window):
    shop = opened("assistant")
    shop.consume()
    wait_until(shop.consumer_pid, timeout=40)
    pid = shop.consumer_pid()
    page = window(shop).page
    page.add_init_script(RECORD)
    page.goto(shop.url)
    page.get_by_role("link", name="Assistant").click()
    page.get_by_label("Question").fill(QUESTION)
    page.get_by_role("button", name="Ask").click()
    answer, note = page.locator(".mq-stream"), page.locator(".answer [role=status]")
    playwright.expect(answer).to_contain_text("The chart lamp", timeout=15_000 * PATIENCE)

    os.kill(pid, signal.SIGKILL)
    page.reload()

    playwright.expect(note).to_have_text("Begun again, attempt 2. Complete.", timeout=60_000 * PATIENCE)
    found = page.evaluate("chunks")
    begun = [chunk["kind"] for chunk in found].index("restart")
    assert answer.text_content() == "".join(words(shop))
    assert [chunk["text"] for chunk in found[begun:] if chunk["kind"] == "text"] == words(shop)
    for attempt, chunks in ((1, found[:begun]), (2, found[begun + 1 :])):
        numbers = [(chunk["attempt"], chunk["number"]) for chunk in chunks]
        assert numbers == [(attempt, number) for number in range(1, len(chunks) + 1)]
    assert found[-1]["kind"] == "end"
