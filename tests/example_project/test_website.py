import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse

import pytest

from example_project.demo.browser import Browser, PageFailed
from example_project.demo.children import address, answers, listen
from example_project.demo.website import Website
from tests.example_project.conftest import ROOT
from tests.waiting import wait_until


@pytest.fixture
def website(tmp_path: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A running web site with an empty shop, and its address."""
    env = {
        "PATH": "",
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
        "EXAMPLE_PROJECT_DIR": str(tmp_path),
        "MQ_REDIS_URL": "unix:///nowhere/redis.sock",
        # Intervals in place of cron expressions, which need a package.
        "EXAMPLE_PROJECT_OFTEN_SECONDS": "86400",
    }
    subprocess.run(
        [sys.executable, "example_project/manage.py", "openshop", "-v0"], cwd=ROOT, env=env, check=True, timeout=280
    )
    with listen() as listener:
        site = address(listener)
        command = [sys.executable, "-m", "example_project.demo.website", str(listener.fileno())]
        process = subprocess.Popen(command, cwd=ROOT, env=env, pass_fds=[listener.fileno()])
    with process:
        try:
            wait_until(lambda: answers(site), timeout=60)
            yield site, process
        finally:
            process.kill()


def test_the_website_serves_pages_and_static_files_and_stops_when_asked_to(
    website: tuple[str, "subprocess.Popen[bytes]"],
) -> None:
    site, process = website
    with Browser(site) as browser:
        assert browser.get("/") == "/"
        browser.get("/static/shop/shop.css")
        with pytest.raises(PageFailed, match="404"):
            browser.get("/products/submarine/")

    process.send_signal(signal.SIGTERM)

    assert process.wait(30) == 0
    assert not answers(site)


def test_a_request_that_runs_is_answered_before_the_website_ends() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def page(environ: dict[str, Any], start_response: StartResponse) -> list[bytes]:
        entered.set()
        assert go_on.wait(30)
        start_response("200 OK", [])
        return [b"done"]

    website = Website(listen())
    website.set_app(page)
    with ThreadPoolExecutor() as threads:
        served = threads.submit(website.serve_forever)
        visit = threads.submit(Browser(address(website.socket)).get, "/slow")
        assert entered.wait(30)
        website.shutdown()
        closed = threads.submit(website.server_close)
        assert not closed.done()
        go_on.set()
        assert visit.result(30) == "/slow"
        closed.result(30)
        served.result(30)
