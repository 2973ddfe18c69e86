"""Visitors of the shop: they look, fill carts, order, forget carts, and change their minds."""

import itertools
import logging
import threading
from random import Random

from example_project.demo.browser import Browser, PageFailed
from example_project.shop.goods import GOODS

logger = logging.getLogger(__name__)

NAMES = ["Ada", "Bela", "Chidi", "Dora", "Emil", "Farah", "Goran", "Hana", "Ines", "Jun", "Kofi", "Lena"]
#: Visitors in the shop at the same time.
AT_ONCE = 4
#: Of a hundred visitors so many order, forget their carts, empty them, ask for the code to their orders, and forget
#: the admin's password; the others only look.
ORDER, FORGET, EMPTY, ASK, LOSE = 55, 20, 5, 10, 5
#: One in so many orders with an address whose mailbox does not exist: the dead letters of the demo.
WRONG_ADDRESS_EVERY = 12


class Visitors:
    """A stream of visitors, each a session of real HTTP requests."""

    def __init__(self, site: str, *, per_second: float, seed: int = 1) -> None:
        """Prepare; nobody comes before `start`."""
        self.orders = 0
        self.failures = 0
        self._site = site
        self._pause = AT_ONCE / per_second
        self._seed = seed
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._threads = [threading.Thread(target=self._come, name=f"visitor-{n}") for n in range(AT_ONCE)]

    def start(self) -> None:
        """Let them in."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let nobody in any more, and wait until those inside have left."""
        self._closing.set()
        for thread in self._threads:
            thread.join()

    def _come(self) -> None:
        while not self._closing.is_set():
            with self._lock:
                number = next(self._numbers)
            draw = Random(f"{self._seed}:{number}")
            try:
                with Browser(self._site) as browser:
                    self._visit(browser, number, draw)
            except PageFailed as error:
                with self._lock:
                    self.failures += 1
                logger.warning("Visitor %d: %s", number, error)
            self._closing.wait(self._pause * draw.uniform(0.5, 1.5))

    def _visit(self, browser: Browser, number: int, draw: Random) -> None:
        browser.get("/")
        for picture, *_ in draw.sample(GOODS, draw.randint(1, 3)):
            browser.get(f"/products/{picture}/")
            browser.submit(f"/products/{picture}/add/", quantity=draw.randint(1, 3))
        mood = 0 if is_wrong(number) else draw.randrange(100)
        if mood < ORDER:
            self._order(browser, number, draw)
        elif mood < ORDER + FORGET:
            browser.submit("/cart/keep/", email=address(number, draw))
        elif mood < ORDER + FORGET + EMPTY:
            browser.submit("/cart/empty/")
        elif mood < ORDER + FORGET + EMPTY + ASK:
            browser.submit("/orders/find/", email=address(number, draw))
        elif mood < ORDER + FORGET + EMPTY + ASK + LOSE:
            browser.get("/admin/password/")
            browser.submit("/admin/password/", email="admin@localhost")

    def _order(self, browser: Browser, number: int, draw: Random) -> None:
        browser.get("/checkout/")
        page = browser.submit(
            "/checkout/",
            name=draw.choice(NAMES),
            email=address(number, draw),
            phone=f"+49151{number:07}" if draw.random() < 0.8 else "",
            device=f"telephone-{number}" if draw.random() < 0.7 else "",
        )
        if not page.startswith("/orders/"):
            raise PageFailed(f"the order ended at {page}")
        with self._lock:
            self.orders += 1


def address(number: int, draw: Random) -> str:
    """Return a visitor's e-mail address."""
    domain = "nowhere.invalid" if is_wrong(number) else "example.org"
    return f"{draw.choice(NAMES).lower()}.{number}@{domain}"


def is_wrong(number: int) -> bool:
    """Say whether a visitor mistypes the address."""
    return number % WRONG_ADDRESS_EVERY == 0
