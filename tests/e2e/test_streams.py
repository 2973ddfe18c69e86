"""A stream in a browser, with a strict content security policy."""

import pytest
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.test.testcases import LiveServerThread

from mq_django import views
from mq_django.producers.message_streams import hubs
from tests.e2e.conftest import playwright
from tests.e2e.streams import box
from tests.producers.test_message_streams import QUEUES, Writer
from tests.waiting import wait_until


@pytest.fixture
def address():
    """The website. pytest-django's own would empty the database, which the loop of Playwright's thread forbids."""
    server = LiveServerThread("127.0.0.1", StaticFilesHandler, connections_override={})
    server.start()
    server.is_ready.wait(60)
    yield f"http://127.0.0.1:{server.port}"
    server.terminate()


@pytest.fixture
def page(settings, mq_settings, address, browser):
    settings.ROOT_URLCONF = "tests.e2e.streams"
    settings.MIDDLEWARE = ["tests.e2e.policy.strict", "django.middleware.gzip.GZipMiddleware"]
    mq_settings(QUEUES=QUEUES)
    found = browser.new_page()
    found.errors = []
    found.on("pageerror", lambda error: found.errors.append(str(error)))
    found.on("console", lambda message: message.type == "error" and found.errors.append(message.text))
    found.address = f"{address}/"
    yield found
    found.close()
    wait_until(lambda: not views._readers)
    hubs.forget_all()


def test_a_stream_appears_token_by_token_and_survives_a_reload(page):
    writer = Writer()
    writer.texts("To <b>be", " or")
    page.goto(page.address + "page")
    boxes = [page.locator(".mq-stream").nth(at) for at in (0, 1)]
    for text, token in (("To <b>be or", " not"), ("To <b>be or not", " to be")):
        for each in boxes:
            playwright.expect(each).to_have_text(text)
        writer.texts(token)
    playwright.expect(boxes[0]).to_have_text("To <b>be or not to be")
    page.reload()
    playwright.expect(boxes[0]).to_have_text("To <b>be or not to be")
    writer.restart()
    writer.texts("Again")
    writer.end()
    playwright.expect(boxes[1]).to_have_text("Again")
    wait_until(lambda: not views._readers)
    assert page.errors == []


def test_a_page_hears_of_each_chunk_and_goes_on_after_a_response_has_ended(page, monkeypatch):
    monkeypatch.setattr(views, "LONGEST", 1.0)
    monkeypatch.setattr(views, "KEEP_ALIVE", 0.2)
    writer = Writer()
    page.add_init_script(
        "window.heard = []; document.addEventListener('mq-chunk', (event) => window.heard.push(event.detail))"
    )
    page.goto(page.address + "page")
    for number in range(3):
        writer.add("json", f'{{"n": {number}}}')
        page.wait_for_function(f"window.heard.length == {2 * (number + 1)}")
        wait_until(lambda: not views._readers)
        wait_until(lambda: views._readers)
    writer.end()
    page.wait_for_function("window.heard.length == 8")
    wait_until(lambda: not views._readers)
    heard = page.evaluate("window.heard")
    assert [each["json"]["n"] for each in heard if each["kind"] == "json"] == [0, 0, 1, 1, 2, 2]
    assert [each["outcome"] for each in heard if each["kind"] == "end"] == ["handled"] * 2


def test_the_page_of_the_guide_shows_text_and_log(page):
    writer = Writer()
    writer.add("log", "20 of <300>")
    writer.texts("To be")
    page.add_init_script(box("js"))
    page.goto(page.address + "guide")
    playwright.expect(page.locator(".mq-stream")).to_have_text("To be")
    playwright.expect(page.locator("#log li")).to_have_text("20 of <300>")
    writer.end()
    wait_until(lambda: not views._readers)
