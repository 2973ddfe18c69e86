"""The page of all queues on one screen, and the keys of the admin, in a browser."""

from tests.e2e.test_admin import PHONE, faults


def focused(page):
    """Return the text of the element that has the focus."""
    return page.evaluate("document.activeElement.textContent.trim()")


def test_the_table_begins_on_the_first_screen(full, window):
    seen = window(full, viewport={"width": 1280, "height": 800})
    seen.go()
    assert seen.page.locator("#result_list tbody tr").first.bounding_box()["y"] < 500
    phone = window(full, color_scheme="dark", **PHONE)
    for each in (seen, phone):
        each.go("?group=prefix")
        assert faults(each.page) == []


def test_keys_move_through_rows_open_pages_and_are_listed(shop, window):
    seen = window(shop)
    seen.go("?sort=name")
    press = seen.page.keyboard.press
    rows = seen.page.eval_on_selector_all("#result_list tbody th a", "found => found.map(a => a.textContent)")

    for key, row in (("j", 0), ("j", 1), ("k", 0), ("k", 0)):
        press(key)
        assert focused(seen.page) == rows[row]
    press("/")
    search = seen.page.evaluate("document.activeElement.type")
    assert search == "search"
    # Keys that are written move nothing.
    seen.page.keyboard.type("j?g")
    assert seen.page.evaluate("document.activeElement.value") == "j?g"
    seen.page.evaluate("document.activeElement.blur()")
    press("Control+j")
    assert seen.page.evaluate("document.activeElement === document.body")

    seen.page.get_by_role("button", name="Keyboard shortcuts").focus()
    press("?")
    dialog = seen.page.get_by_role("dialog", name="Keyboard shortcuts")
    dialog.wait_for()
    assert faults(seen.page) == []
    press("Escape")
    dialog.wait_for(state="hidden")
    assert focused(seen.page) == "Keyboard shortcuts"

    press("g")
    press("c")
    seen.page.wait_for_url("**/consumers/")
    press("g")
    press("o")
    seen.page.wait_for_url("**/queue/")


def test_x_selects_a_row(full, window):
    seen = window(full)
    seen.go("emails/dead/")
    seen.page.keyboard.press("j")
    seen.page.keyboard.press("x")
    boxes = seen.page.eval_on_selector_all(".action-select", "found => found.map(box => box.checked)")
    assert boxes[0]
    assert not any(boxes[1:])


def test_a_star_needs_no_script(shop, window):
    seen = window(shop, java_script_enabled=False)
    seen.go("?sort=-name")
    names = seen.page.locator("#result_list tbody th a")
    last = names.last.inner_text()
    seen.page.get_by_role("button", name=f"Star {last}").click()
    assert names.first.inner_text() == last
    seen.page.get_by_role("button", name=f"Star {last}").click()
    assert names.last.inner_text() == last
