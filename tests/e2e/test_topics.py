"""A topic, in a browser: its log is looked into, a group is moved to a message of it, and handles it again."""

import json

import pytest

from tests.waiting import wait_until


def order(shop, *numbers):
    """Publish orders to the topic."""
    lines = [{"product": "Rope", "pieces": 2}]
    many = [
        ("order.placed", {"order_id": number, "name": "Ada", "total": "12.50", "lines": lines, "password": "hunter2"})
        for number in numbers
    ]
    code = f"from mq_django import topics; topics['orders'].publish_many({many!r})"
    shop.manage("shell", "-v", "0", "-c", code)


def groups(shop):
    """Return the groups of the topic, by name."""
    return {row["group"]: row for row in json.loads(shop.manage("mq", "topics", "--json")) if "group" in row}


def is_done(shop):
    found = groups(shop)
    return len(found) == 3 and all(row["lag"] == row["pending"] == 0 for row in found.values())


@pytest.fixture
def shop(opened):
    """A shop whose consumers have handled three orders."""
    found = opened("topics")
    found.consume()
    if not groups(found):
        order(found, 1, 2, 3)
    wait_until(lambda: is_done(found), timeout=40)
    return found


def test_a_group_is_moved_to_a_message_of_the_log_and_handles_it_again(shop, window):
    seen = window(shop)
    seen.expect("Topics and their groups")

    seen.go("orders/change/")
    seen.expect("bookkeeping")
    seen.go("orders/log/")
    seen.expect("all groups")
    # The newest first: the second of three.
    seen.page.locator("#result_list tbody th a").nth(1).click()
    seen.expect('"order_id": 2')
    seen.expect("[redacted]")
    seen.press("Move group here: bookkeeping")
    assert seen.page.locator("input[value=offset]").is_checked()
    seen.press("Preview…")
    seen.expect("2 messages are handled again.")
    seen.press("Yes, move it")

    seen.expect("2 messages are handled again.")
    seen.expect("5 handled", seconds=30)
    seen.go("orders:stock/change/")
    seen.expect("3 handled")


def test_filling_in_a_moment_chooses_it(shop, window):
    seen = window(shop)
    seen.go("orders:stock/seek/")
    seen.page.locator("input[value=end]").check()
    seen.page.locator("input[name=moment]").fill("2020-01-01T00:00:00")

    assert seen.page.locator("input[value=moment]").is_checked()
    seen.press("Preview…")
    seen.expect("Move the group to 2020-01-01 00:00:00")


def test_a_queue_s_charts_are_drawn_and_told(shop, window):
    seen = window(shop)
    for scheme in ("light", "dark"):
        seen.page.emulate_media(color_scheme=scheme)
        seen.go("orders:statistics/change/")
        seen.expect("3 handled", seconds=20)
        seen.expect("Latency: p50")
        assert seen.page.locator(".mq-took").first.bounding_box()["height"] >= 1
    seen.press("As a table")
    seen.expect("Latency p95")
