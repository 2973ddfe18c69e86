"""The documentation site, built here: on a desktop and a phone, light and dark, for everybody, with a search."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import ROOT, playwright

pytest.importorskip("sphinx", reason="make e2e installs Sphinx")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="make e2e installs axe")
AXE_SCRIPT = axe.Axe().axe_script

#: One of each kind, on which axe measures the contrast of each word. That takes seconds for each.
KINDS = ["troubleshooting", "reference/handlers", "reference/errors", "tasks", "search"]
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
CONTRAST = "color-contrast"
NO_CONTRAST = {CONTRAST: {"enabled": False}}
#: Marks the first element with text of each colour, background, size and weight; returns how many there are.
MARK = """() => {
    const background = element => {
        const found = []
        for (let at = element; at; at = at.parentElement) found.push(getComputedStyle(at).backgroundColor)
        return found.filter(colour => colour !== 'rgba(0, 0, 0, 0)')[0]
    }
    const known = new Set()
    for (const element of document.querySelectorAll('[data-sample]')) element.removeAttribute('data-sample')
    for (const element of document.body.querySelectorAll('*')) {
        const has_text = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim())
        if (!has_text || !element.checkVisibility()) continue
        const style = getComputedStyle(element)
        const key = [style.color, background(element), style.fontSize, style.fontWeight, style.opacity].join()
        if (!known.has(key)) element.setAttribute('data-sample', '')
        known.add(key)
    }
    return known.size
}"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is that of the method
        """Log nothing."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    built = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-d", str(built / ".doctrees"), str(ROOT / "docs"), str(built)]
    subprocess.run(command, check=True, timeout=900)
    return built


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[str]:
    """The address of the site."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def names(folder: Path) -> list[str]:
    """The pages of the site."""
    return [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.html"))]


@pytest.fixture
def open_page(browser: Any, site: str) -> Iterator[Any]:
    """Open a page of a size and a colour scheme, which asks no other host for anything."""
    contexts, elsewhere = [], []

    def open_one(size: dict[str, int], scheme: str) -> Any:
        contexts.append(browser.new_context(viewport=size, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.on("request", lambda asked: asked.url.startswith((site, "data:")) or elsewhere.append(asked.url))
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert elsewhere == []


def test_no_page_is_wider_than_the_screen(open_page, site, names):
    page = open_page(DESKTOP, "light")
    wider = []
    for name in names:
        page.set_viewport_size(DESKTOP)
        page.goto(f"{site}/{name}")
        for size in (DESKTOP, PHONE):
            page.set_viewport_size(size)
            if page.evaluate("document.documentElement.scrollWidth") > size["width"]:
                wider.append((name, size["width"]))
    assert wider == []


def violations(page: Any, context: Any = None, **options: Any) -> list[Any]:
    """Return what axe finds on a page as it is now: the rule, and the first elements."""
    options = {"resultTypes": ["violations"], "preload": False, **options}
    runner = axe.Axe("0" if page.evaluate("'axe' in window") else AXE_SCRIPT)  # it is large: once a page
    response = runner.run(page, context=context, options=options).response
    return [(each["id"], [node["target"] for node in each["nodes"][:3]]) for each in response["violations"]]


def test_axe_finds_no_violation(open_page, site):
    page, found = open_page(DESKTOP, "light"), []
    for name in KINDS:
        page.set_viewport_size(DESKTOP)
        page.emulate_media(color_scheme="light")
        page.goto(f"{site}/{name}.html")
        found += [(name, "light", each) for each in violations(page)]
        page.set_viewport_size(PHONE)
        page.emulate_media(color_scheme="dark")
        # Rules about colours take longer than all the others: one element of each combination is enough here.
        found += [(name, "dark", each) for each in [*violations(page, rules=NO_CONTRAST), *contrasts(page)]]
    assert found == []


def contrasts(page: Any) -> list[Any]:
    """Return where the contrast is too low, of each combination of colours once."""
    assert page.evaluate(MARK) > 3
    return violations(page, {"include": [["[data-sample]"]]}, runOnly=[CONTRAST])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_axe_finds_no_violation_on_any_page(open_page, site, names):
    page, found = open_page(DESKTOP, "light"), []
    # A link has the same colours on a phone.
    on_a_phone = {**NO_CONTRAST, "link-in-text-block": {"enabled": False}}
    for name in names:
        page.set_viewport_size(DESKTOP)
        page.emulate_media(color_scheme="light")
        page.goto(f"{site}/{name}")
        found += [(name, "light", each) for each in [*violations(page, rules=NO_CONTRAST), *contrasts(page)]]
        page.set_viewport_size(PHONE)
        found += [(name, "phone", each) for each in violations(page, rules=on_a_phone)]
        page.emulate_media(color_scheme="dark")
        found += [(name, "dark", each) for each in contrasts(page)]
    assert found == []


def test_axe_finds_a_contrast_that_is_too_low(open_page, site):
    page = open_page(DESKTOP, "light")
    page.goto(f"{site}/troubleshooting.html")
    page.add_style_tag(content="article h2 { color: #ddd }")
    assert [rule for rule, _ in contrasts(page)] == [CONTRAST]


def test_the_search_finds_a_public_name(open_page, site):
    page = open_page(DESKTOP, "light")
    page.goto(f"{site}/index.html")
    page.fill("input.sidebar-search", "RetryPolicy")
    page.press("input.sidebar-search", "Enter")
    playwright.expect(page.locator("#search-results")).to_contain_text("mq_django.RetryPolicy")


def test_the_reader_can_change_light_and_dark(open_page, site):
    page = open_page(DESKTOP, "light")
    page.goto(f"{site}/index.html")
    background = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(background)
    while page.evaluate("document.body.dataset.theme") != "dark":
        page.locator(".theme-toggle:visible").first.click()
    assert page.evaluate(background) != before


def test_each_page_is_there_as_markdown_and_listed(folder: Path, names: list[str]) -> None:
    listed = re.findall(r"^- \[.+\]\((\S+)\)$", (folder / "llms.txt").read_text(encoding="utf-8"), re.MULTILINE)
    pages = {Path(name).with_suffix(".md").as_posix() for name in names}
    assert {*listed} == pages - {"index.md", "search.md", "genindex.md", "py-modindex.md"}
    assert len(listed) == len({*listed})
    assert not [name for name in listed if "<!--" in (folder / name).read_text(encoding="utf-8")]
