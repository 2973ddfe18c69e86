"""How many clicks and seconds an operator needs in the admin: `python -m benchmarks.incidents [LOOK] [SCENARIO]...`.

At 300 queues, 1,000,000 messages, 100,000 dead letters and 50 consumers, in Chromium, with `make e2e`'s packages. A
scenario begins on the page of all queues, and ends when the page says what the operator needs to know or to have done.
A click is a click, or the Enter key that submits what was typed. The seconds are those in which the browser waits.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import django

from benchmarks.many_queues import BASE, QUEUES, beat, keep_alive
from benchmarks.trees import ROOT
from mq_django.transport.private_server import PrivateServer

MESSAGES, DEAD = 1_000_000, 100_000
#: Of these queues the first has most of the messages, and the second the dead letters.
DEEP, FAILING = "bench0", "bench1"
#: The one message that is looked for by its data.
CUSTOMER = "C-4242"
NAMES = ("receipt", "invoice", "reminder")
ERRORS = ("TimeoutError: the partner did not reply in 10 s", "ValueError: the address has no street")
CHUNK = 5000
DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


def fill() -> None:
    """Publish the messages, and let some of them fail."""
    from mq_django import queues, schedules  # noqa: PLC0415 - needs the project to be set up
    from mq_django.inspector import actions  # noqa: PLC0415

    for name, count in [(FAILING, DEAD), (DEEP, MESSAGES // 2), *_others(MESSAGES // 2 - DEAD)]:
        for at in range(0, count, CHUNK):
            batch = [(NAMES[n % 3], _data(n)) for n in range(at, min(count, at + CHUNK))]
            queues[name].publish_many(batch)
        if name == FAILING:
            _bury()
    queues[DEEP].publish("receipt", _data(4242) | {"customer": CUSTOMER})
    for number in range(0, QUEUES, 10):
        schedules.create(f"nightly{number}", queue=f"bench{number}", cron="0 2 * * *", message="report")
    actions.pause("bench7", who="ada", reason="the partner migrates")


def _others(count: int) -> Iterator[tuple[str, int]]:
    for number in range(2, QUEUES):
        yield f"bench{number}", count // (QUEUES - 2)


def _data(number: int) -> dict[str, Any]:
    return {"customer": f"K-{number}", "total": "129.90", "note": "a parcel for the neighbour"}


def _bury() -> None:
    from mq_django.conf import get_config  # noqa: PLC0415
    from mq_django.core.outcomes import Bury  # noqa: PLC0415
    from mq_django.stores import open_store  # noqa: PLC0415
    from mq_django.stores.base import Settlement  # noqa: PLC0415
    from mq_django.transport.connections import get_client  # noqa: PLC0415
    from mq_django.transport.sessions import Pooled  # noqa: PLC0415

    store = open_store(get_config().queue(FAILING), Pooled(get_client("chores")))
    # The first one makes the group.
    store.take("web1-1-abcdef-c0", count=1)
    while taken := store.take("web1-1-abcdef-c0", count=500):
        dead = [Settlement(item, Bury(ERRORS[n % 2], reason="attempts"), micros=900) for n, item in enumerate(taken)]
        store.settle("web1-1-abcdef-c0", dead)


class Operator:
    """A browser, whose clicks are counted and whose waits are timed."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url
        self.clicks, self.seconds = 0, 0.0

    def begin(self) -> None:
        """Open the page of all queues, and count from then on."""
        self.page.goto(self.url + BASE)
        self.clicks, self.seconds = 0, 0.0

    def click(self, selector: str) -> None:
        """Click what a selector finds first."""
        self._timed(self.page.locator(selector).locator("visible=true").first.click)

    def link(self, text: str) -> None:
        """Follow a link, or press a button, with a text."""
        found = self.page.get_by_role("link", name=text).or_(self.page.get_by_role("button", name=text))
        self._timed(found.locator("visible=true").first.click)

    def ask(self, text: str) -> None:
        """Type into the field for searches, and press Enter."""
        self.page.fill("#mq-search", text)
        self._timed(lambda: self.page.press("#mq-search", "Enter"))

    def see(self, text: str) -> None:
        """Wait until the page says something."""
        began = time.monotonic()
        self.page.locator("#container, body").first.get_by_text(text).first.wait_for(timeout=60_000)
        self.seconds += time.monotonic() - began

    def _timed(self, act: Callable[[], Any]) -> None:
        began = time.monotonic()
        act()
        self.clicks += 1
        self.seconds += time.monotonic() - began


@contextmanager
def site() -> Iterator[str]:
    """Serve the admin in a process of its own."""
    from example_project.demo.children import address, listen  # noqa: PLC0415

    with listen() as listener:
        fd, url = listener.fileno(), address(listener)
        command = [sys.executable, "-m", "example_project.demo.website", str(fd)]
        served = subprocess.Popen(command, cwd=ROOT, pass_fds=(fd,))
    try:
        yield url
    finally:
        served.terminate()
        served.wait(20)


@contextmanager
def heartbeats() -> Iterator[None]:
    """Keep the consumers alive."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(2):
            keep_alive()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(30)


def search(one: Operator) -> None:
    """Find the message of a customer among all of them."""
    one.ask(f"customer={CUSTOMER}")
    one.see("Found 1.")
    one.click("[data-mq-found] tbody th a")
    one.see(CUSTOMER)


def redrive(one: Operator) -> None:
    """Redrive the dead letters of one error, and no others."""
    one.click(f'#result_list a[href$="/{FAILING}/dead/"]')
    one.link("Group by error")
    one.click("#result_list tbody a")
    one.link("Redrive all")
    one.see("dead letters?")
    one.link("Yes, redrive")
    one.see("Redriv")


def skip(one: Operator) -> None:
    """Skip the next run of a nightly job."""
    one.link("Schedules")
    one.link("nightly0")
    one.link("Skip…")
    one.link("Yes, skip it")
    one.see("is skipped")


def undo(one: Operator) -> None:
    """See who paused a queue, and resume it."""
    one.link("Activity")
    one.see("the partner migrates")
    one.link("Resume…")
    one.link("Yes, resume")
    one.see("resumed")


def look(one: Operator) -> None:
    """See what a queue has handled today, and yesterday."""
    one.link("Metrics")
    one.click(f'#result_list a[href*="queue={DEEP}"]')
    one.see("Handling time")


SCENARIOS: dict[str, Callable[[Operator], None]] = {each.__name__: each for each in (search, redrive, skip, undo, look)}


def measure(look: str, chosen: list[str]) -> None:
    """Print the clicks and the seconds of each scenario."""
    from django.contrib.auth.models import User  # noqa: PLC0415
    from django.core.management import call_command  # noqa: PLC0415
    from django.test import Client  # noqa: PLC0415
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - `make e2e` installs it

    call_command("migrate", verbosity=0)
    client = Client()
    client.force_login(User.objects.create_superuser("boss", password="x"))
    with site() as url, heartbeats(), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM"), args=["--no-sandbox"])
        for scheme, viewport in (("light", DESK), ("dark", PHONE)):
            context = browser.new_context(viewport=viewport, color_scheme=scheme)
            session = {"name": "sessionid", "value": client.cookies["sessionid"].value, "url": url}
            context.add_cookies([session])
            for name in chosen or SCENARIOS:
                one = Operator(context.new_page(), url)
                one.begin()
                SCENARIOS[name](one)
                where = "phone" if viewport is PHONE else "desk"
                print(f"{look or 'admin':10}{where:8}{name:10}{one.clicks:4} clicks{one.seconds:7.1f} s", flush=True)
        browser.close()


def main() -> int:
    """Start a Redis, fill it, and measure."""
    look, *chosen = sys.argv[1:] or [""]
    with (
        tempfile.TemporaryDirectory() as folder,
        PrivateServer(tcp=True, settings={"save": "", "maxmemory-policy": "noeviction"}) as server,
    ):
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(Path(folder) / "db.sqlite3")}
        os.environ |= {
            "BENCH_REDIS_URL": server.url,
            "BENCH_QUEUES": str(QUEUES),
            "BENCH_DATABASE": json.dumps(database),
            "BENCH_LOOK": "" if look == "admin" else look,
            "DJANGO_SETTINGS_MODULE": "benchmarks.ours.admin_settings",
        }
        django.setup()
        fill()
        beat({})
        measure(look, chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
