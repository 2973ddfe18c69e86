"""A message is published by a form, found, published again with a change, and moved to another queue."""

from tests.e2e.test_admin import PHONE, faults


def test_a_message_is_published_copied_changed_and_moved(full, window):
    desk, phone = window(full), window(full, color_scheme="dark", **PHONE)
    for seen in (desk, phone):
        seen.go("notifications/publish/")
        seen.page.fill("#mq-name", "push")
        seen.page.fill("#mq-data", '{\n  "user": 1,,\n}')
        seen.page.click("input[type=submit]")
        seen.expect("Line 2, column 13")
        assert faults(seen.page) == []
        seen.page.fill("#mq-data", '{"user": 1, "text": "hello"}')
        seen.page.click("input[type=submit]")
        seen.expect("Publish message “push”?")
        seen.page.click("input[type=submit]")
        seen.expect("Message push was published.")

        seen.go("notifications/ready/")
        seen.page.locator("tbody th a, tbody td a").last.click()
        seen.page.locator(".mq-copies summary").click()
        assert faults(seen.page) == []
        seen.page.locator("a", has_text="Publish again…").click()
        seen.page.fill("#mq-data", '{"user": 2, "text": "hello"}')
        seen.page.click("input[type=submit]")
        seen.expect("Changes of the data")
        assert seen.page.locator("ins").count() == seen.page.locator("del").count() == 1
        assert faults(seen.page) == []

        seen.go("notifications/ready/")
        seen.page.locator(".action-select").last.check()
        seen.page.locator("button", has_text="Move selected…").click()
        seen.expect("Move 1 ready message to another queue?")
        assert faults(seen.page) == []
        seen.page.select_option("select[name=target]", "emails")
        seen.page.click("input[type=submit]")
        seen.expect("1 message was moved to emails.")

        seen.go("emails/publish/")
        assert faults(seen.page) == []
