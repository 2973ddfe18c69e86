"""What an operator sees and does, in a browser, on the running shop."""

import json
import os
import shutil
import subprocess

import pytest

from tests.e2e.conftest import HERE
from tests.waiting import wait_until

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}


def publish(shop, queue, name, data, *options):
    return json.loads(shop.manage("mq", "publish", queue, name, json.dumps(data), *options, "--json"))["id"]


def status(shop, queue):
    return json.loads(shop.manage("mq", "status", queue, "--json"))[0]


def test_the_numbers_move_by_themselves(shop, window):
    seen = window()
    seen.expect("No problems found.")
    publish(shop, "notifications", "push", {"user": 1})

    seen.expect("has 1 message and no running consumer. Is runconsumer started?")
    seen.expect("1 queue needs attention.")


def test_a_dead_letter_is_opened_redriven_and_handled(shop, window, tmp_path):
    shop.consume()
    seen = window()
    message_id = publish(shop, "emails", "fragile", {"user_id": 7, "password": "hunter2"})
    wait_until(lambda: status(shop, "emails")["dead"] == 1, timeout=20)
    seen.go()
    seen.expect("emails has 1 new dead letter in the last half hour.")

    seen.go("emails/dead/")
    seen.press(message_id)
    seen.expect("Broken: the press is jammed")
    seen.expect("[redacted]")
    (tmp_path / "mended").touch()
    seen.press("Redrive…")
    seen.expect("Redrive 1 dead letter?")
    seen.press("Yes, redrive it")
    seen.expect("1 dead letter was redriven.")

    wait_until(lambda: status(shop, "emails")["ready"] == status(shop, "emails")["pending"] == 0, timeout=20)
    assert status(shop, "emails")["dead"] == 0
    seen.go("emails/change/")
    seen.expect("1 handled")


def test_a_queue_is_paused_and_a_message_says_why_it_waits(shop, window):
    shop.consume()
    seen = window()
    seen.go("notifications/change/")
    seen.expect("alive")
    seen.press("Pause the queue…")
    seen.press("Yes, pause it")
    seen.expect("The queue is paused.")
    message_id = publish(shop, "notifications", "push", {"user": 1})

    seen.go("notifications/ready/")
    seen.press(message_id)
    seen.expect("Why it is not running: The queue is paused.")
    seen.picture("why-not-running")

    seen.go("notifications/change/")
    seen.press("Resume the queue…")
    seen.press("Yes, resume it")
    seen.expect("The queue was resumed.")


ORDER = {"order_id": 7, "name": "Ada", "total": "12.50", "lines": [{"product": "Mug", "pieces": 2}]}


def order(shop, count):
    """Publish orders to the topic."""
    many = [("order.placed", {**ORDER, "order_id": number}) for number in range(count)]
    shop.do(f"from mq_django import topics; topics['orders'].publish_many({many!r})")


def test_a_consumer_shows_what_it_handles_goes_quiet_and_stops(shop, window, tmp_path):
    shop.consume()
    publish(shop, "emails", "long", {})
    seen = window()
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
    (tmp_path / "enough").touch()

    wait_until(shop.has_ended, timeout=30)
    seen.expect("No consumer is running.", seconds=30)


def test_the_focus_stays_where_it_is_while_the_numbers_move(shop, window):
    seen = window()
    seen.expect("No problems found.")
    link = seen.page.locator("#result_list").get_by_role("link", name="notifications", exact=True)
    link.focus()
    publish(shop, "notifications", "push", {"user": 1})
    seen.expect("1 queue needs attention.")

    assert seen.page.evaluate("document.activeElement.textContent") == "notifications"
    seen.page.keyboard.press("Enter")
    seen.expect("The queue needs attention.")


@pytest.fixture
def full(shop, tmp_path):
    """A shop that has something to show in each place."""
    shop.consume()
    publish(shop, "emails", "fragile", {"user_id": 7})
    publish(shop, "emails", "nobody.knows", {"user_id": 7})
    publish(shop, "emails", "welcome", {"user_id": 7}, "--delay", "3600")
    publish(shop, "emails", "long", {"user_id": 7})
    shop.manage(
        "mq", "schedules", "create", "digest", "--queue", "notifications", "--every", "86400", "--message", "push"
    )
    order(shop, 3)
    wait_until(lambda: status(shop, "emails")["dead"] == status(shop, "emails")["unhandled"] == 1, timeout=30)
    shop.manage("mq", "pause", "notifications")
    publish(shop, "notifications", "push", {"user": 1, "password": "x"})
    yield shop
    (tmp_path / "enough").touch()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", [{}, PHONE], ids=["desk", "phone"])
def test_no_page_has_a_serious_fault_for_those_who_see_little(full, window, scheme, device):
    """With the strict policy on: what judges the pages is handed to the browser past it."""
    seen = window(color_scheme=scheme, **device)
    script = axe().read_text(encoding="utf-8")
    pages = seen.pages()
    assert len(pages) >= 20

    serious = []
    for path in pages:
        seen.go(path)
        seen.page.evaluate(script)
        found = seen.page.evaluate("axe.run('#content', {resultTypes: ['violations']})")
        serious += [
            (path, fault["id"], node["html"][:200])
            for fault in found["violations"]
            if fault["impact"] in ("serious", "critical")
            for node in fault["nodes"]
        ]
        wide = seen.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if wide > 0:
            serious.append((path, "too wide", f"{wide} pixels"))
        serious += [
            (path, "off screen", button)
            for button in seen.page.eval_on_selector_all(
                "#content-main .mq-button",
                "found => found.filter(b => b.getBoundingClientRect().right > innerWidth).map(b => b.outerHTML)",
            )
        ]
    assert serious == []


@pytest.mark.skipif("MQ_E2E_PICTURES" not in os.environ, reason="pictures are renewed when that is asked for")
def test_pictures_are_renewed(full, window):
    """What the documentation shows: a shop that has been busy for a day, and has a few troubles."""
    full.do("from tests.e2e.past import fill; fill()")
    desk, dark = window(), window(color_scheme="dark")
    phone = window(color_scheme="dark", device_scale_factor=2, **PHONE)
    desk.shoot("queues", "", "attention.")
    desk.shoot("queue", "emails/change/", "handled")
    entry = json.loads(full.manage("mq", "peek", "emails", "dead", "--json"))[0]["id"]
    desk.go("emails/dead/")
    desk.press(entry)
    desk.expect("the press is jammed")
    desk.picture("dead-letter")
    desk.shoot("topic", "orders/change/", "bookkeeping")
    dark.shoot("consumers", "consumers/", "long")
    dark.shoot("queue-dark", "notifications/change/", "is paused")
    phone.shoot("phone", "", "attention.")


def axe():
    """Return the path of axe-core, installed on first use."""
    script = HERE / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        npm = shutil.which("npm") or pytest.fail("npm is needed to install axe-core")
        command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--silent"]
        subprocess.run(command, cwd=HERE, check=True, timeout=280)
    return script
