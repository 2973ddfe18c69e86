"""The move of each page in docs/coming-from/, with the real workers of the other queue, and the app of the index.

Each queue has an environment of its own, `.venv-bench-coming-NAME`, made when first needed: that takes the network. It
also has the packages that mq_django needs, so that both can run beside each other.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import environments
from mq_django.testing import PrivateServer
from tests.coming_from.boxes import PAGES, boxes
from tests.coming_from.stage import Stage
from tests.optional import needs_croniter

OURS = ("Django>=5.2,<5.3", "redis>=6.4,<9", "django-redis>=6,<8", "django-tasks>=0.12,<0.13", "croniter>=3")
#: What the environment of each queue has. The versions are those of the pages.
PACKAGES = {
    "bullmq": ("bullmq@6.7.0", "ioredis@5.11.1"),
    "celery": ("celery[redis]==5.7.0", *OURS),
    "django-q2": ("django-q2==1.11.1", *OURS),
    "dramatiq": ("dramatiq[redis]==2.2.1", "django-dramatiq==0.15.0", "periodiq==0.14.0", *OURS),
    "huey": ("huey==3.5.4", *OURS),
    "rq": ("rq==2.12.0", "django-rq==4.2.0", *OURS),
}
IN_NODE = {"bullmq"}

pytestmark = [pytest.mark.slow, pytest.mark.coming_from, pytest.mark.timeout(1500)]


@pytest.fixture
def url() -> Iterator[str]:
    """A server that listens on a port, for clients that know no socket."""
    with PrivateServer(tcp=True, settings={"databases": "16"}) as server:
        yield server.url


def stage(page: str, folder: Path, url: str) -> Stage:
    """Return a project in the environment of a page's queue."""
    name = f"coming-{page}"
    reason = environments.install(name, PACKAGES[page], is_python=page not in IN_NODE)
    if reason:
        pytest.skip(f"{name} cannot be installed: {reason}")
    place = environments.folder(name)
    if page in IN_NODE:
        programs = Path(sys.executable).parent
        return Stage(folder, url=url, programs=programs, NODE_PATH=str(place / "node_modules"))
    return Stage(folder, url=url, programs=place / "bin")


def test_every_page_has_an_environment():
    assert sorted(PACKAGES) == PAGES


@pytest.mark.parametrize("page", PAGES)
def test_both_run_side_by_side_until_the_old_queue_is_empty(page, tmp_path, url):
    with stage(page, tmp_path / "both", url) as project:
        project.play(boxes(page, "both"))


@needs_croniter
def test_the_app_runs_with_a_consumer(tmp_path, url):
    with Stage(tmp_path / "right", url=url, programs=Path(sys.executable).parent) as project:
        project.play(boxes("index", "right"))
