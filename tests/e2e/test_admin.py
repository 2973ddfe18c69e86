"""What an operator sees and does, in a browser, on the running shop."""

import json
import shutil
import subprocess

import pytest

from tests.e2e.conftest import HERE
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}


def publish(shop, queue, name, data, *options):
    return json.loads(shop.manage("mq", "publish", queue, name, json.dumps(data), *options, "--json"))["id"]


def status(shop, queue):
    return json.loads(shop.manage("mq", "status", queue, "--json"))[0]


def test_the_numbers_move_by_themselves(shop, window):
    seen = window()
    seen.expect("All queues are well.")
    publish(shop, "notifications", "push", {"user": 1})

    seen.expect("has 1 message and no living consumer. Is runconsumer running?")
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
    seen.expect("The queue runs again.")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", [{}, PHONE], ids=["desk", "phone"])
def test_no_page_has_a_serious_fault_for_those_who_see_little(shop, window, scheme, device):
    seen = window(color_scheme=scheme, bypass_csp=True, **device)
    publish(shop, "emails", "welcome", {"user_id": 7}, "--delay", "3600")
    publish(shop, "notifications", "push", {"user": 1, "password": "x"})
    pages = [
        "",
        "emails/change/",
        "notifications/ready/",
        "emails/waiting/delayed/",
        "emails/dead/",
        "emails/dead/groups/",
    ]
    script = axe()

    for path in pages:
        seen.go(path)
        seen.page.add_script_tag(path=script)
        found = seen.page.evaluate("axe.run('#content', {resultTypes: ['violations']})")
        serious = [
            (fault["id"], node["html"][:200])
            for fault in found["violations"]
            if fault["impact"] in ("serious", "critical")
            for node in fault["nodes"]
        ]
        assert serious == [], path
        wide = seen.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{path} is {wide} pixels too wide"


def axe():
    """Return the path of axe-core, installed on first use."""
    script = HERE / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        npm = shutil.which("npm") or pytest.fail("npm is needed to install axe-core")
        command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--silent"]
        subprocess.run(command, cwd=HERE, check=True, timeout=120)
    return script
