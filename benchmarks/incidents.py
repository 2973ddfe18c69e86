"""How many clicks and seconds an operator needs in the admin: `python -m benchmarks.incidents [SCENARIO]...`.

At 300 queues with a schedule each, 1,000,000 messages, 100,000 dead letters and 50 consumers, in Chromium, with `make
e2e`'s packages; in each look, on one server. A scenario begins on the page of all queues, and ends when the page says
what the operator needs to know or to have done. A click is a click, a choice from a list, or the Enter key that submits
what was typed. The seconds are those in which the browser waits. A scenario that takes more than it may is an error.
"""

import argparse
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
from typing import Any, NamedTuple

import django

from benchmarks.many_queues import BASE, QUEUES, beat, keep_alive
from benchmarks.trees import ROOT
from mq_django.transport.private_server import PrivateServer

MESSAGES = 1_000_000
#: One message in so many is a dead letter.
DEAD_EVERY = 10
#: Of these queues the first has most of the messages, and the second the dead letters.
DEEP, FAILING = "bench0", "bench1"
#: Of a workflow the first has a step that fails, and the second is paused.
STEPPING, PAUSED = "bench9", "bench8"
#: The one message that is looked for by its data.
CUSTOMER = "C-4242"
NAMES = ("receipt", "invoice", "reminder")
ERRORS = ("TimeoutError: the partner did not reply in 10 s", "ValueError: the address has no street")
CHUNK = 5000
#: What a scenario may take.
MAX_CLICKS, MAX_SECONDS = 5, 10.0
#: The app that changes the admin's look, "" for none, and how the browser shows pages.
DESK: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
LOOKS = {
    f"{app or 'plain'}, {name}": (app, options)
    for app in ("", "unfold")
    for name, options in (
        ("light", DESK),
        ("dark", {**DESK, "color_scheme": "dark"}),
        ("phone", {**PHONE, "color_scheme": "dark"}),
    )
}


def fill(messages: int) -> None:
    """Publish the messages, and let some of them fail."""
    from mq_django import queues, schedules  # noqa: PLC0415 - needs the project to be set up
    from mq_django.inspector import actions  # noqa: PLC0415

    dead = messages // DEAD_EVERY
    for name, count in [(FAILING, dead), (DEEP, messages // 2), *_others(messages // 2 - dead)]:
        for at in range(0, count, CHUNK):
            batch = [(NAMES[n % 3], _data(n)) for n in range(at, min(count, at + CHUNK))]
            queues[name].publish_many(batch)
        if name == FAILING:
            _bury(FAILING)
    queues[DEEP].publish("receipt", _data(4242) | {"customer": CUSTOMER})
    for number in range(0, QUEUES, 10):
        schedules.create(f"nightly{number}", queue=f"bench{number}", cron="0 2 * * *", message="report")
    actions.pause(PAUSED, who="ada", reason="the index is built")


def prepare() -> None:
    """Bring about what the scenarios end, such as a pause, and undo what they do."""
    from benchmarks.ours import tasks  # noqa: PLC0415 - needs the project to be set up
    from mq_django import schedules  # noqa: PLC0415
    from mq_django.conf import get_config  # noqa: PLC0415
    from mq_django.inspector import actions, jobs  # noqa: PLC0415
    from mq_django.inspector.problem_list import get_mutes, unmute  # noqa: PLC0415
    from mq_django.producers.workflow_steps import StepDelivery  # noqa: PLC0415
    from mq_django.transport.connections import open_transport  # noqa: PLC0415
    from mq_django.workflows import workflow  # noqa: PLC0415

    actions.pause("bench7", who="ada", reason="the partner migrates")
    jobs.cancel(FAILING)
    for muted in get_mutes():
        unmute(*muted)
    for skipped in schedules.get("nightly0", queue="bench0").skips:
        schedules.unskip("nightly0", queue="bench0", tick=skipped.tick_at)
    with workflow("import_prices", policy="continue") as flow:
        flow.add(tasks.step.using(queue_name=STEPPING), "shop.csv")
        flow.add(tasks.step.using(queue_name=PAUSED), "partner.csv")
    StepDelivery(get_config().queue(STEPPING), open_transport("produce")).deliver(_bury(STEPPING))


def _others(count: int) -> Iterator[tuple[str, int]]:
    for name in (f"bench{number}" for number in range(2, QUEUES)):
        if name != STEPPING:
            yield name, count // (QUEUES - 3)


def _data(number: int) -> dict[str, Any]:
    return {"customer": f"K-{number}", "total": "129.90", "note": "a parcel for the neighbour"}


def _bury(name: str) -> list[str]:
    """Let all messages of a queue fail, and return their ids."""
    from mq_django.conf import get_config  # noqa: PLC0415
    from mq_django.core.messages import Bury  # noqa: PLC0415
    from mq_django.stores import open_store  # noqa: PLC0415
    from mq_django.stores.base import Settlement  # noqa: PLC0415
    from mq_django.stores.counters import Slots  # noqa: PLC0415
    from mq_django.transport.connections import get_client  # noqa: PLC0415
    from mq_django.transport.sessions import Pooled  # noqa: PLC0415

    config, transport, buried = get_config().queue(name), Pooled(get_client("chores")), list[str]()
    store = open_store(config, transport)
    # The first call makes the group.
    first = store.take("web1-1-abcdef-c0", count=1)
    while taken := first or store.take("web1-1-abcdef-c0", count=500):
        dead = [Settlement(item, Bury(ERRORS[n % 2], reason="attempts"), micros=900) for n, item in enumerate(taken)]
        store.settle("web1-1-abcdef-c0", dead)
        buried += [item.message.id for item in taken]
        first = []
    transport.pipeline([Slots(config.keys).add_command({("buried", "receipt"): len(buried)})])
    return buried


def _handle() -> None:
    """Let all queues but that of the dead letters have handled messages just now, so that they do not stand still."""
    from mq_django.conf import get_config  # noqa: PLC0415
    from mq_django.stores.counters import Slots  # noqa: PLC0415
    from mq_django.transport.connections import open_transport  # noqa: PLC0415

    keys = [config.keys for name, config in get_config().queues.items() if name != FAILING]
    open_transport("produce").pipelines([[Slots(each).add_command({("handled", "receipt"): 100})] for each in keys])


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

    def press(self, text: str) -> None:
        """Submit a form by its button."""
        self._timed(self.page.locator(f'input[type=submit][value^="{text}"]').first.click)

    def choose(self, selector: str, value: str) -> None:
        """Choose from a list."""
        self._timed(lambda: self.page.select_option(selector, value))

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
def site(look: str) -> Iterator[str]:
    """Serve the admin in a process of its own, with an app that changes its look if one is named."""
    from example_project.demo.children import address, listen  # noqa: PLC0415

    with listen() as listener:
        fd, url, environment = listener.fileno(), address(listener), {**os.environ, "BENCH_LOOK": look}
        command = [sys.executable, "-m", "example_project.demo.website", str(fd)]
        served = subprocess.Popen(command, cwd=ROOT, pass_fds=(fd,), stderr=subprocess.DEVNULL, env=environment)
    try:
        yield url
    finally:
        served.terminate()
        served.wait(20)


@contextmanager
def heartbeats() -> Iterator[None]:
    """Keep the consumers alive, and at work."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(2):
            keep_alive()
            _handle()

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


def mute(one: Operator) -> None:
    """Mute a problem for some hours, with a reason."""
    one.link("Problems")
    one.click(f'a[href*="/mute/?queue={PAUSED}&"]')
    one.choose("[name=span]", "4 h")
    one.page.fill("[name=reason]", "the partner migrates")
    one.press("Yes, mute it")
    one.see("is muted")


def override(one: Operator) -> None:
    """Give a schedule of the code other times."""
    one.link("Schedules")
    one.link("Other times…")
    one.page.fill("[name=every]", "7200")
    one.page.fill("[name=reason]", "the partner migrates")
    one.press("Give it these times")
    one.see("has other times until it is changed back")


def move(one: Operator) -> None:
    """Move chosen dead letters to another queue."""
    one.click(f'#result_list a[href$="/{FAILING}/dead/"]')
    one.click(".action-select")
    one.link("Move selected…")
    one.choose("[name=target]", "bench2")
    one.press("Yes, move")
    one.see("moved to bench2")


def publish(one: Operator) -> None:
    """Publish a message."""
    one.click(f'#result_list a[href$="/{DEEP}/change/"]')
    one.link("Publish…")
    one.page.fill("[name=name]", "receipt")
    one.page.fill("[name=data]", '{"customer": 7}')
    one.press("Publish…")
    one.press("Yes, publish it")
    one.see("was published")


def again(one: Operator) -> None:
    """Publish a dead letter again, with other data."""
    one.click(f'#result_list a[href$="/{FAILING}/dead/"]')
    one.click("#result_list tbody th a")
    one.link("Publish again…")
    one.page.fill("[name=data]", '{"customer": 7}')
    one.press("Publish…")
    one.press("Yes, publish it")
    one.see("was published")


def run(one: Operator) -> None:
    """See what a run of a workflow waits for, and retry its failed step."""
    one.link("Workflows")
    one.link("import_prices")
    one.see("is paused")
    one.link("Retry step")
    one.press("Yes, retry it")
    one.see("runs again")


#: In this order: what is done in one is not in the way of the next.
SCENARIOS: dict[str, Callable[[Operator], None]] = {
    each.__name__: each for each in (search, redrive, skip, undo, look, mute, override, move, publish, again, run)
}


class Taken(NamedTuple):
    """What a scenario took."""

    clicks: int
    seconds: float

    @property
    def is_enough(self) -> bool:
        return self.clicks <= MAX_CLICKS and self.seconds <= MAX_SECONDS


def measure(chosen: list[str]) -> dict[str, dict[str, Taken]]:
    """Return what each scenario took in each look."""
    from django.contrib.auth.models import User  # noqa: PLC0415
    from django.core.management import call_command  # noqa: PLC0415
    from django.test import Client  # noqa: PLC0415
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - `make e2e` installs it

    call_command("migrate", verbosity=0)
    client, found = Client(), {name: dict[str, Taken]() for name in chosen}
    client.force_login(User.objects.create_superuser("boss", password="x"))
    with heartbeats(), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM"), args=["--no-sandbox"])
        for label, (app, options) in LOOKS.items():
            prepare()
            with site(app) as url, browser.new_context(**options) as context:
                session: Any = {"name": "sessionid", "value": client.cookies["sessionid"].value, "url": url}
                context.add_cookies([session])
                for name in chosen:
                    one = Operator(context.new_page(), url)
                    one.begin()
                    SCENARIOS[name](one)
                    # It would go on to ask for what is new.
                    one.page.close()
                    found[name][label] = Taken(one.clicks, one.seconds)
                    print(f"{label:16}{name:10}{one.clicks:4} clicks{one.seconds:7.1f} s", file=sys.stderr, flush=True)
        browser.close()
    return found


def table(found: dict[str, dict[str, Taken]]) -> str:
    """Return the clicks of each scenario, and its seconds in each look, as a table in Markdown."""
    rows = [["", "clicks", *(f"{label}, s" for label in LOOKS)], ["-"] * (len(LOOKS) + 2)]
    for name, taken in found.items():
        clicks = "/".join(map(str, sorted({one.clicks for one in taken.values()})))
        rows.append([name, clicks, *(f"{one.seconds:.1f}" for one in taken.values())])
    return "\n".join(f"| {' | '.join(row)} |".replace("| - ", "|-").replace("-| ", "-|") for row in rows)


def main() -> int:
    """Start a Redis, fill it, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; all if none")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        PrivateServer(tcp=True, settings={"save": "", "maxmemory-policy": "noeviction"}) as server,
    ):
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(Path(folder) / "db.sqlite3")}
        schedules = {
            f"hourly{number}": {"queue": f"bench{number}", "every": 3600, "message": "report"}
            for number in range(QUEUES)
        }
        os.environ |= {
            "BENCH_REDIS_URL": server.url,
            "BENCH_QUEUES": str(QUEUES),
            "BENCH_SCHEDULES": json.dumps(schedules),
            "BENCH_DATABASE": json.dumps(database),
            "DJANGO_SETTINGS_MODULE": "benchmarks.ours.admin_settings",
        }
        django.setup()
        fill(asked.messages)
        beat({})
        found = measure(asked.scenarios or list(SCENARIOS))
    print(table(found))
    return int(not all(taken.is_enough for looks in found.values() for taken in looks.values()))


if __name__ == "__main__":
    sys.exit(main())
