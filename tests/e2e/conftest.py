"""The example shop with its website, its gateway and its consumers, and a Chromium in front of it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from django.urls import resolve

from tests.waiting import PATIENCE, wait_until

playwright = pytest.importorskip("playwright.sync_api", reason="make e2e installs Playwright")

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "img"
BASE = "/admin/mq_django/queue/"
#: Returns what a narrow screen shows only after scrolling sideways. The graph of a run is in a frame of its own.
CUT = """() => [...document.querySelectorAll("#content-main :is(a, button, input, select, .results, .mq-table *)")]
    .filter(found => found.checkVisibility() && !found.closest(".visually-hidden, svg"))
    .filter(found => {
        const {left, right} = found.getBoundingClientRect()
        return left < 0 || right > innerWidth || found.matches(".results") && found.scrollWidth > found.clientWidth
    })
    .map(found => found.outerHTML.slice(0, 200))"""
Open = Callable[..., "Window"]


def chromium() -> str:
    """Return the browser of this machine, or end the test: these are run on purpose."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.fail("there is no Chromium on this machine; set CHROMIUM to one")
    return found


class Shop:
    """The running example project."""

    def __init__(self, folder: Path, redis_url: str, namespace: str) -> None:
        self.env = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.e2e.settings",
            "EXAMPLE_PROJECT_DIR": str(folder),
            "EXAMPLE_PROJECT_NAMESPACE": namespace,
            # Nobody answers there, so that what is pushed fails.
            "EXAMPLE_PROJECT_GATEWAY_URL": "http://127.0.0.1:9",
            "MQ_REDIS_URL": redis_url,
            "PYTHONPATH": str(ROOT),
        }
        self.folder = folder
        #: The cookies of the one who has logged in.
        self.session: Any = None
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._commands = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.remote"],
            env=self.env,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.manage("openshop", "--verbosity", "0")
        self._urls: dict[str, str] = {}
        self.url = self.site()

    def manage(self, *arguments: str) -> str:
        """Run one of manage.py's commands, and return what it says."""
        assert self._commands.stdin
        assert self._commands.stdout
        self._commands.stdin.write(json.dumps(arguments) + "\n")
        self._commands.stdin.flush()
        said, error = json.loads(self._commands.stdout.readline())
        assert not error, error
        return str(said).strip()

    def site(self, look: str = "") -> str:
        """Serve the shop, with the admin of an app that changes its look if one is named, and return its URL."""
        if look not in self._urls:
            self._urls[look] = self._serve(look)
        return self._urls[look]

    def consume(self) -> None:
        """Start consumers, if none run."""
        if self.has_ended():
            self._start("consumers", "-m", "django", "runconsumer", "--threads", "2")

    def consumer_pid(self) -> int | None:
        """Return the process of the one consumer below the supervisor that was started here, if it has begun."""
        supervisor = self._running["consumers"].pid
        children = " ".join(path.read_text() for path in Path(f"/proc/{supervisor}/task").glob("*/children")).split()
        found = [row["pid"] for row in json.loads(self.manage("mq", "consumers", "--json"))]
        return next((int(pid) for pid in found if str(pid) in children), None)

    def do(self, code: str) -> str:
        """Run some Python in the project."""
        return self.manage("shell", "--verbosity", "0", "-c", code)

    def has_ended(self) -> bool:
        """Tell whether no consumers run."""
        return "consumers" not in self._running or self._running["consumers"].poll() == 0

    def end(self) -> None:
        """Stop everything."""
        for name in list(self._running):
            self._stop(name)
        self._commands.communicate()

    def _start(self, name: str, *arguments: str, look: str = "", **options: Any) -> None:
        env = {**self.env, "MQ_E2E_LOOK": look}
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, *arguments], env=env, cwd=ROOT, stdout=log, stderr=log, **options
            )

    def _stop(self, name: str) -> None:
        process = self._running.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)

    def _serve(self, look: str) -> str:
        from example_project.demo.children import address, listen  # noqa: PLC0415 - it reads no settings

        with listen() as listener:
            url = address(listener)
            fd = listener.fileno()
            self._start(f"web {look}", "-m", "example_project.demo.website", str(fd), look=look, pass_fds=(fd,))
        wait_until(lambda: _answers(f"{url}/admin/login/"), timeout=30)
        return url


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def kind(address: str) -> str:
    """Return what sort of page an address leads to: its route, and whether it has a query."""
    path, _, query = address.partition("?")
    name = resolve(BASE + path).url_name or ""
    # A group of a topic has pages that other queues do not have.
    return (
        f"{name} {query.partition('=')[0]} {path.partition('/')[2].partition('/')[2][:8] if 'waiting' in path else ''}"
    )


class Window:
    """One page of the browser, and what it complained about."""

    def __init__(self, page: Any, shop: Shop, look: str = "") -> None:
        self.page = page
        self.shop = shop
        self.url = shop.site(look)
        self.complaints: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _said(self, said: Any) -> None:
        # The browser asks for an icon by itself, and the shop has none.
        if said.type in ("error", "warning") and not said.location["url"].endswith("/favicon.ico"):
            self.complaints.append(f"{said.text} ({said.location['url']})")

    def go(self, path: str = "") -> None:
        self.page.goto(f"{self.url}{BASE}{path}")

    def pages(self) -> list[str]:
        """Return an address of every kind of page that links lead to, from the overview on."""
        known: dict[str, str] = {"": ""}
        ahead = [""]
        while ahead:
            self.go(ahead.pop(0))
            links = self.page.eval_on_selector_all(
                "#content-main a[href]:not(svg a)", "found => found.map(a => a.pathname + a.search)"
            )
            for link in links:
                address = link.removeprefix(BASE)
                if link.startswith(BASE) and kind(address) not in known and "export" not in address:
                    known[kind(address)] = address
                    ahead.append(address)
        return list(known.values())

    def press(self, name: str) -> None:
        """Press a button or follow a link."""
        found = self.page.get_by_role("button", name=name).or_(self.page.get_by_role("link", name=name))
        found.first.click()

    def expect(self, text: str, *, seconds: float = 15) -> None:
        """Wait until the page says something."""
        playwright.expect(self.page.locator("#container")).to_contain_text(text, timeout=seconds * 1000 * PATIENCE)

    def picture(self, name: str) -> None:
        """Keep a picture for the documentation, when that is asked for."""
        if os.environ.get("MQ_E2E_PICTURES"):
            self.page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")

    def shoot(self, name: str, path: str, text: str) -> None:
        """Go to a page, wait until it says something, and keep a picture of it."""
        self.go(path)
        self.expect(text, seconds=30)
        self.picture(name)

    def log_in(self) -> None:
        from example_project.shop import goods  # noqa: PLC0415 - it reads no settings

        self.page.goto(f"{self.shop.url}/admin/login/?next=/admin/mq_django/queue/")
        self.page.fill("#id_username", goods.ADMIN_NAME)
        self.page.fill("#id_password", goods.ADMIN_PASSWORD)
        self.page.click("input[type=submit]")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as found:
        started = found.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def shops_url(redis_url: str) -> str:
    """The URL of the database of all shops. Tests without a shop must leave no keys in theirs."""
    if redis_url.startswith("unix:"):
        return redis_url.partition("?")[0] + "?db=1"
    return urlsplit(redis_url)._replace(path="/1").geturl()


@pytest.fixture(scope="session")
def shops_client(shops_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(shops_url, socket_timeout=10) as client:
        yield client


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory, shops_url: str, shops_client: redis.Redis) -> Iterator[Any]:
    """Open a shop for all tests, by its name."""
    shops: dict[str, Shop] = {}

    def open_shop(name: str) -> Shop:
        if name not in shops:
            shops[name] = Shop(tmp_path_factory.mktemp(name), shops_url, f"e2e-{name}")
        return shops[name]

    yield open_shop
    for name, shop in shops.items():
        shop.end()
        forget(shops_client, f"e2e-{name}")


def forget(client: redis.Redis, namespace: str) -> None:
    """Delete the keys of a shop."""
    for pattern in (f"{namespace}:*", f"{{{namespace}*"):
        for key in client.scan_iter(match=pattern, count=1000):
            client.delete(key)


@pytest.fixture
def shop(opened: Any, shops_client: redis.Redis) -> Shop:
    """A shop without consumers and without messages."""
    found: Shop = opened("idle")
    forget(shops_client, "e2e-idle")
    return found


@pytest.fixture
def busy(opened: Any) -> Shop:
    """A shop whose consumers handle what other tests publish, too."""
    found: Shop = opened("busy")
    found.consume()
    return found


def publish(shop: Shop, queue: str, name: str, data: dict[str, Any], *options: str) -> str:
    """Publish a message, and return its id."""
    return str(json.loads(shop.manage("mq", "publish", queue, name, json.dumps(data), *options, "--json"))["id"])


def status(shop: Shop, queue: str) -> dict[str, Any]:
    """Return the figures of a queue."""
    found: dict[str, Any] = json.loads(shop.manage("mq", "status", queue, "--json"))[0]
    return found


ORDER = {"order_id": 7, "name": "Ada", "total": "12.50", "lines": [{"product": "Mug", "pieces": 2}]}


def order(shop: Shop, count: int) -> None:
    """Publish orders to the topic."""
    many = [("order.placed", {**ORDER, "order_id": number}) for number in range(count)]
    shop.do(f"from mq_django import topics; topics['orders'].publish_many({many!r})")


@pytest.fixture
def full(busy: Shop) -> Iterator[Shop]:
    """A shop that has something to show in each place."""
    for name in ("mended", "enough"):
        (busy.folder / name).unlink(missing_ok=True)
    publish(busy, "emails", "fragile", {"user_id": 7})
    publish(busy, "emails", "nobody.knows", {"user_id": 7})
    publish(busy, "emails", "welcome", {"user_id": 7}, "--delay", "3600")
    publish(busy, "emails", "long", {"user_id": 7})
    busy.manage(
        "mq", "schedules", "create", "digest", "--queue", "notifications", "--every", "86400", "--message", "push"
    )
    order(busy, 3)
    busy.do("from example_project.office.workflows import import_price_lists as run; run.start([])")
    wait_until(lambda: status(busy, "emails")["dead"] and status(busy, "emails")["unhandled"], timeout=30)
    busy.manage("mq", "pause", "notifications")
    publish(busy, "notifications", "push", {"user": 1, "password": "x"})
    yield busy
    (busy.folder / "enough").touch()
    busy.manage("mq", "schedules", "delete", "digest", "--queue", "notifications", "--yes")
    busy.manage("mq", "resume", "notifications")


@pytest.fixture
def window(browser: Any) -> Iterator[Open]:
    """Open pages of a shop, logged in; at the end none may have complained."""
    opened: list[tuple[Window, Any]] = []

    def open_page(shop: Shop, look: str = "", **options: Any) -> Window:
        options = {"viewport": {"width": 1280, "height": 860}, "storage_state": shop.session, **options}
        context = browser.new_context(**options)
        context.set_default_timeout(15_000 * PATIENCE)
        found = Window(context.new_page(), shop, look)
        opened.append((found, context))
        if shop.session is None:
            found.log_in()
            shop.session = context.storage_state()
        found.go()
        return found

    yield open_page
    for found, context in opened:
        context.close()
        assert found.complaints == []
