"""What users install: the wheel and the sdist, built here, and the wheel at work in an environment of its own."""

import os
import re
import runpy
import tarfile
import zipfile
from email.message import Message
from email.parser import BytesParser
from email.policy import compat32
from pathlib import Path

import pytest

import mq_django
from tests.install.wheels import ROOT, build, copy_project, copy_source, install, run

#: Installing from the network takes its time.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return copy_source(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def wheel(source) -> Path:
    return build(source, "wheel")


@pytest.fixture(scope="module")
def wheel_names(wheel) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def package_files() -> set[str]:
    files = (path for path in (ROOT / "mq_django").rglob("*") if path.is_file())
    return {
        path.relative_to(ROOT).as_posix()
        for path in files
        if "__pycache__" not in path.parts and path.name != ".DS_Store"
    }


def pages() -> set[str]:
    files = (path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))
    return {f"mq_django/pages/{page.as_posix()}" for page in files if page.parts[0] != "decisions"}


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return BytesParser(policy=compat32).parsebytes(archive.read(name))


class TestWheel:
    def test_it_holds_every_file_of_the_package_and_nothing_else(self, wheel_names):
        assert {name for name in wheel_names if ".dist-info/" not in name} == package_files() | pages()

    def test_each_kind_of_data_is_there(self, wheel_names):
        kinds = ["*.lua", "py.typed", "*.html", "*.css", "migrations/0001_*.py"]
        assert [kind for kind in kinds if not any(Path(name).match(kind) for name in wheel_names)] == []

    def test_its_metadata_is_what_the_project_says(self, wheel):
        metadata = metadata_of(wheel)
        assert metadata["Version"] == mq_django.__version__
        assert metadata["License-Expression"] == "MIT"
        assert metadata["Requires-Python"] == ">=3.11"
        extras = {"tasks", "fast", "demo", "schedules", "opentelemetry", "prometheus", "sentry"}
        assert set(metadata.get_all("Provides-Extra")) == extras
        required = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
        assert {line.split("<")[0].split(">")[0].lower() for line in required} == {"django", "redis", "django-redis"}

    @pytest.mark.slow
    def test_a_message_goes_through_it(self, wheel, tmp_path, redis_url, namespace):
        python = install(wheel, tmp_path / "env")
        project = tmp_path / "project"
        copy_project(project)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DJANGO"))}
        environment |= {
            "DJANGO_SETTINGS_MODULE": "settings",
            "PYTHONPATH": str(project),
            "PYTHONWARNINGS": "error",
            "TEST_CONNECTION": redis_url,
            "TEST_NAMESPACE": namespace,
        }

        def django(*arguments: str) -> str:
            return run(python, "-m", "django", *arguments, cwd=project, env=environment)

        django("check", "--fail-level", "WARNING")
        django("makemigrations", "--check", "--dry-run")
        assert str(tmp_path / "env") in run(python, "steps.py", "publish", cwd=project, env=environment)
        django("runconsumer", "emails", "--drain")
        assert "now" in (project / "handled").read_text(encoding="utf-8").split()


class TestDescription:
    """What package indexes show: the README, without the files beside it."""

    #: The target of each link and picture.
    TARGET = re.compile(r"\]\(([^)]*)\)")
    README = (ROOT / "README.md").read_text(encoding="utf-8")

    def test_without_the_address_of_a_repository_it_has_no_link_into_it(self, wheel):
        metadata = metadata_of(wheel)
        assert metadata["Description-Content-Type"] == "text/markdown"
        text = metadata.get_payload()
        assert text.count("\n## ") == self.README.count("\n## ")
        assert [target for target in self.TARGET.findall(text) if not target.startswith("https://")] == []
        assert "<!--" not in text
        assert "- Tasks (docs/tasks.md) of Django's API" in text

    def test_links_and_pictures_lead_into_the_repository(self, tmp_path, monkeypatch):
        home, described = "https://git.example.org/shop/mq_django", {}
        urls = f'[project.urls]\nRepository = "{home}/"\n\n[project.optional-dependencies]'
        for name in ("setup.py", "README.md", "pyproject.toml"):
            text = (ROOT / name).read_text(encoding="utf-8").replace("[project.optional-dependencies]", urls)
            (tmp_path / name).write_text(text, encoding="utf-8")
        monkeypatch.setattr("setuptools.setup", described.update)
        runpy.run_path(str(tmp_path / "setup.py"))
        text = described["long_description"]
        targets = self.TARGET.findall(text)
        assert len(targets) == len(self.TARGET.findall(self.README))
        paths = {target.removeprefix(f"{home}/").partition("#")[0] for target in targets}
        assert all(path.startswith(("blob/HEAD/", "raw/HEAD/")) for path in paths), paths
        assert [path for path in paths if not (ROOT / path.split("/", 2)[2]).exists()] == []
        assert text.count(f"]({home}/raw/HEAD/docs/img/") == self.README.count("](docs/img/") == 2


def test_the_sdist_holds_what_a_packager_needs(source):
    with tarfile.open(build(source, "sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert package_files() <= names
    assert {"LICENSE", "README.md", "CHANGELOG.md", "Makefile", "pyproject.toml", "setup.cfg"} <= names
    assert {"tests/conftest.py", "tests/settings.py"} <= names
