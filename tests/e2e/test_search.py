"""The search over all queues, in a browser."""

from tests.e2e.conftest import CUT, publish
from tests.e2e.test_admin import PHONE, faults
from tests.e2e.test_looks import PICTURES


def test_messages_are_found_while_one_looks_and_acted_on(shop, window):
    seen = window(shop)
    shop.do(
        "from mq_django import queues\n"
        "queues['emails'].publish_many([('receipt', {'customer': f'C-{n % 20}'}) for n in range(6000)])"
    )
    publish(shop, "notifications", "push", {"customer": "C-7"})
    seen.go("consumers/")
    seen.page.fill("#mq-search", "customer=C-7")
    seen.page.press("#mq-search", "Enter")
    # It goes on by itself, until there are many, and then when it is told to.
    seen.expect("There are many results. Resume to find more.", seconds=30)
    rows = seen.page.locator('[data-mq-group="ready emails"] tbody tr')
    assert rows.count() >= 200
    seen.page.click("[data-mq-toggle-search]")
    seen.expect("lists were searched", seconds=60)
    assert rows.count() == 300
    assert seen.page.locator('[data-mq-group="ready notifications"] tbody tr').count() == 1
    assert seen.page.locator("[data-mq-toggle-search]").is_hidden()

    PICTURES.mkdir(parents=True, exist_ok=True)
    seen.page.evaluate("scrollTo(0, 0)")
    seen.page.screenshot(path=PICTURES / "search.png")
    phone = window(shop, color_scheme="dark", **PHONE)
    for name, path in (("found", "find/?q=customer%3DC-7+state:ready"), ("help", "find/")):
        seen.go(path)
        seen.page.screenshot(path=PICTURES / f"search-{name}.png")
        phone.go(path)
        phone.page.wait_for_timeout(300)
        assert faults(seen.page) == []
        assert faults(phone.page) == []
        assert phone.page.evaluate(CUT) == []
        phone.page.screenshot(path=PICTURES / f"search-{name}-phone.png")
