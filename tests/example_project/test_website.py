import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from example_project.demo.browser import Browser, PageFailed
from example_project.demo.children import address, answers, listen
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
