"""What an operator sees and does, in a browser, on the running shop."""

import json
import os
import subprocess
import sys

import pytest

from tests.e2e.conftest import CUT, ROOT, publish, status
from tests.waiting import wait_until

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="make e2e installs axe")
AXE_SCRIPT = axe.Axe().axe_script

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}


def test_the_numbers_move_by_themselves_and_the_focus_stays_where_it_is(shop, window):
    seen = window(shop)
    seen.expect("No problems found.")
    link = seen.page.locator("#result_list").get_by_role("link", name="notifications", exact=True)
    link.focus()
    publish(shop, "notifications", "push", {"user": 1})

    seen.expect("has 1 message and no running consumer. Is runconsumer started?")
    seen.expect("1 problem found.")
    assert seen.page.evaluate("document.activeElement.textContent") == "notifications"
    # The new rows have the heads of their columns, too.
    labels = seen.page.eval_on_selector_all(
        "#result_list tbody td.mq-number:nth-child(3)", "f => f.map(c => c.dataset.label)"
    )
    assert {*labels} == {"Ready"}
    seen.page.keyboard.press("Enter")
    seen.expect("1 problem found.")


def test_a_dead_letter_is_opened_redriven_and_handled(busy, window):
    seen = window(busy)
    mended = busy.folder / "mended"
    mended.unlink(missing_ok=True)
    message_id = publish(busy, "emails", "fragile", {"user_id": 7, "password": "hunter2"})
    wait_until(lambda: message_id in busy.manage("mq", "find", "emails", "--state", "dead"), timeout=20)
    seen.go()
    seen.expect(" in the last half hour.")

    seen.go("emails/dead/")
    seen.press(message_id)
    seen.expect("Broken: the press is jammed")
    seen.expect("[redacted]")
    mended.touch()
    seen.press("Redrive…")
    seen.expect("Redrive 1 dead letter?")
    seen.press("Yes, redrive it")
    seen.expect("1 dead letter was redriven.")

    wait_until(lambda: status(busy, "emails")["ready"] == status(busy, "emails")["pending"] == 0, timeout=20)
    assert message_id not in busy.manage("mq", "find", "emails", "--state", "dead")


def test_a_chart_says_each_step_and_zooms_where_it_is_dragged(busy, window):
    seen = window(busy)
    publish(busy, "emails", "welcome", {"user_id": 7})
    seen.go("metrics/")
    chart = seen.page.locator("svg.mq-hour").first
    box = chart.bounding_box()
    step, y = box["width"] / 60, box["y"] + 20
    seen.page.mouse.move(box["x"] + 30.5 * step, y)
    assert " published, " in seen.page.locator(".mq-exact").first.text_content()
    seen.page.mouse.down()
    seen.page.mouse.move(box["x"] + 40.5 * step, y)
    seen.page.mouse.up()
    seen.page.wait_for_url("**from=*")
    # From the step where it began to that where it ended.
    assert seen.page.locator("svg.mq-hour").first.locator(".mq-column").count() == 11
    assert seen.page.input_value("#id_span") == ""


def test_a_queue_is_paused_and_a_message_says_why_it_waits(busy, window):
    seen = window(busy)
    seen.go("notifications/change/")
    seen.expect("alive")
    seen.press("Pause the queue…")
    seen.press("Yes, pause it")
    seen.expect("The queue is paused.")
    message_id = publish(busy, "notifications", "push", {"user": 1})
    # A consumer that was waiting for it when the queue was paused hands it back.
    wait_until(lambda: message_id in busy.manage("mq", "find", "notifications", "--state", "ready"), timeout=20)

    seen.go("notifications/ready/")
    seen.press(message_id)
    seen.expect("Why it is not running: The queue is paused.")
    seen.picture("why-not-running")

    seen.go("notifications/change/")
    seen.press("Resume the queue…")
    seen.press("Yes, resume it")
    seen.expect("The queue was resumed.")


def test_a_consumer_shows_what_it_handles_goes_quiet_and_stops(shop, window):
    shop.consume()
    publish(shop, "emails", "long", {})
    seen = window(shop)
    seen.go("consumers/")
    seen.expect("1 consumer is running.", seconds=30)
    seen.expect("for ", seconds=15)
    assert seen.page.locator(".mq-running").inner_text().startswith("long")

    seen.press("Quiet…")
    seen.expect("that are being handled now: 1.")
    seen.press("Yes, quiet it")
    seen.expect("was asked to go quiet")
    seen.page.locator(".mq-processes td", has_text="quiet").first.wait_for()
    seen.press("Stop…")
    seen.press("Yes, stop it")
    seen.expect("was asked to stop")
    (shop.folder / "enough").touch()

    wait_until(shop.has_ended, timeout=30)
    seen.expect("No consumer is running.", seconds=30)


def test_no_page_has_a_serious_fault_for_those_who_see_little(full, window):
    """With the strict policy on: what judges the pages is handed to the browser past it."""
    desk, phone = window(full), window(full, color_scheme="dark", **PHONE)
    pages = desk.pages()
    assert len(pages) >= 20

    serious = []
    for path in pages:
        for seen, what in ((desk, "light, on a desk"), (phone, "dark, on a phone")):
            seen.go(path)
            serious += [(path, what, *fault) for fault in faults(seen.page)]
        for width in (390, 320):
            phone.page.set_viewport_size({"width": width, "height": 844})
            serious += [(path, width, cut) for cut in phone.page.evaluate(CUT)]
    assert serious == []

    phone.go("consumers/")
    phone.page.locator(".mq-running a", has_text="Cancel…").click()
    phone.expect("Cancel this message?")


def faults(page):
    """Return what is wrong with a page."""
    page.evaluate(AXE_SCRIPT)
    found = [
        (fault["id"], node["html"][:200])
        for fault in page.evaluate("axe.run('#content', {resultTypes: ['violations']})")["violations"]
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    if wide > 0:
        found.append(("too wide", f"{wide} pixels"))
    off_screen = page.eval_on_selector_all(
        "#content-main .mq-button",
        "found => found.filter(b => b.getBoundingClientRect().right > innerWidth).map(b => b.outerHTML)",
    )
    return found + [("off screen", button) for button in off_screen]


@pytest.mark.skipif("MQ_E2E_PICTURES" not in os.environ, reason="pictures are renewed when that is asked for")
def test_pictures_are_renewed(full, window):
    """What the documentation shows: a shop that has been busy for a day, and has a few troubles."""
    full.do("from tests.e2e.past import fill; fill()")
    full.manage("mq", "pause", "imports", "--reason", "the supplier sends new lists")
    full.do("from example_project.office.workflows import import_price_lists as run; run.start([1, 2])")
    desk, dark = window(full), window(full, color_scheme="dark")
    phone = window(full, color_scheme="dark", device_scale_factor=2, **PHONE)
    desk.shoot("problems", "problems/", "Notices")
    desk.shoot("metrics", "metrics/?span=day&compare=day", "handled")
    desk.shoot("queue", "emails/change/", "handled")
    desk.shoot("search", "find/?q=user_id%3D7", "lists were searched")
    dead = json.loads(full.manage("mq", "find", "emails", "--state", "dead", "--json"))
    entry = next(row["id"] for row in dead if row["name"] == "fragile")
    desk.go("emails/dead/")
    desk.press(entry)
    desk.expect("the press is jammed")
    desk.picture("dead-letter")
    desk.go("notifications/ready/")
    desk.page.locator("#result_list tbody th a").first.click()
    desk.expect("Why it is not running: The queue is paused.")
    desk.picture("why-not-running")
    desk.shoot("topic", "orders/change/", "bookkeeping")
    desk.shoot("schedules", "schedules/", "digest")
    desk.shoot("activity", "activity/", "notifications")
    desk.go("workflows/")
    desk.page.locator("#content-main tbody th a").first.click()
    desk.expect("the supplier sends new lists")
    desk.page.locator(".mq-block", has_text="the supplier sends new lists").last.scroll_into_view_if_needed()
    desk.page.mouse.wheel(0, 300)
    desk.picture("run")
    full.manage("mq", "resume", "imports")
    dark.shoot("consumers", "consumers/", "long")
    dark.press("Stacks")
    dark.expect("handlers.py", seconds=30)
    dark.picture("stacks")
    dark.shoot("queue-dark", "notifications/change/", "is paused")
    phone.shoot("phone", "", "problem")


@pytest.mark.skipif("MQ_E2E_PICTURES" not in os.environ, reason="pictures are renewed when that is asked for")
def test_pictures_of_hundreds_of_queues_are_renewed(full, window):
    code = "from tests.e2e.past import crowd; crowd()"
    command = [sys.executable, "-m", "django", "shell", "--verbosity", "0", "-c", code]
    subprocess.run(command, env={**full.env, "MQ_E2E_LOOK": "crowd"}, cwd=ROOT, check=True, timeout=60)
    desk = window(full, "crowd")
    for name in ("payments-capture", "warehouse-labels"):
        desk.go(f"?q={name}")
        desk.page.get_by_role("button", name=f"Star {name}", exact=True).click()
    desk.shoot("queues", "", "problem")
    desk.shoot("prefixes", "?group=prefix", "problem")
