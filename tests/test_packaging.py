"""What users install: the wheel and the sdist, built here, and the wheel at work in an environment of its own."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import BytesParser
from email.policy import compat32
from pathlib import Path

import pytest

import mq_django

ROOT = Path(__file__).parent.parent

#: Installing from the network takes its time.
pytestmark = pytest.mark.timeout(600)

SETTINGS = """
import os
from pathlib import Path

BASE_DIR = Path(__file__).parent
SECRET_KEY = "only for a test"
USE_TZ = True
INSTALLED_APPS = [
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
    "django.contrib.messages", "django.contrib.sessions", "mq_django", "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates",
    "APP_DIRS": True,
    "OPTIONS": {"context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]},
}]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "db.sqlite3"}}
MQ_DJANGO = {
    "CONNECTION": os.environ["TEST_REDIS_URL"],
    "NAMESPACE": os.environ["TEST_NAMESPACE"],
    "QUEUES": {"emails": {}},
}
"""

HANDLERS = """
from pathlib import Path
from mq_django import handler

@handler("emails", "welcome")
def welcome(message):
    Path(__file__).with_name("handled.txt").write_text(str(message.data["user_id"]))
"""

PUBLISH = """
import mq_django
print(mq_django.__file__)
mq_django.queues["emails"].publish("welcome", {"user_id": 7})
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A copy of the source tree: a build leaves its traces in the tree that it builds."""
    target = tmp_path_factory.mktemp("source") / "mq_django"
    rubbish = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "node_modules", "*.sqlite3")
    shutil.copytree(ROOT, target, ignore=rubbish)
    return target


def build(source: Path, kind: str) -> Path:
    """Build a wheel or an sdist with the project's own backend, as pip does, but without a network."""
    code = f"import sys, setuptools.build_meta as backend; backend.build_{kind}(sys.argv[1])"
    run(sys.executable, "-c", code, str(source / "dist"), cwd=source)
    (built,) = (source / "dist").glob({"wheel": "*.whl", "sdist": "*.tar.gz"}[kind])
    return built


def run(*command: str, **options) -> str:
    outcome = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300, **options
    )
    assert outcome.returncode == 0, f"{command}:\n{outcome.stdout}\n{outcome.stderr}"
    # What setuptools says of files that it overlooked or that are told twice.
    assert "absent from the" not in outcome.stderr
    return outcome.stdout


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


class TestWheel:
    def test_it_holds_every_file_of_the_package_and_nothing_else(self, wheel_names):
        assert {name for name in wheel_names if ".dist-info/" not in name} == package_files()

    @pytest.mark.parametrize("kind", ["*.lua", "py.typed", "*.html", "*.css", "migrations/0001_*.py"])
    def test_each_kind_of_data_is_there(self, wheel_names, kind):
        assert [name for name in wheel_names if Path(name).match(kind)]

    def test_its_metadata_is_what_the_project_says(self, wheel):
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            metadata = BytesParser(policy=compat32).parsebytes(archive.read(name))
        assert metadata["Version"] == mq_django.__version__
        assert metadata["License-Expression"] == "MIT"
        assert metadata["Requires-Python"] == ">=3.11"
        assert set(metadata.get_all("Provides-Extra")) == {"tasks", "fast", "demo", "schedules"}
        required = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
        assert {line.split("<")[0].split(">")[0].lower() for line in required} == {"django", "redis", "django-redis"}

    @pytest.mark.slow
    def test_a_message_goes_through_it(self, wheel, tmp_path, redis_url, namespace):
        python = install(wheel, tmp_path / "env")
        project = make_project(tmp_path / "project")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DJANGO"))}
        environment |= {
            "DJANGO_SETTINGS_MODULE": "settings",
            "PYTHONPATH": str(project),
            "PYTHONWARNINGS": "error",
            "TEST_REDIS_URL": redis_url,
            "TEST_NAMESPACE": namespace,
        }

        def django(*arguments: str) -> str:
            return run(python, "-m", "django", *arguments, cwd=project, env=environment)

        django("check", "--fail-level", "WARNING")
        django("makemigrations", "--check", "--dry-run")
        django("migrate", "--verbosity", "0")
        assert str(tmp_path / "env") in django("shell", "--command", PUBLISH)
        django("runconsumer", "emails", "--drain")
        assert (project / "shop" / "handled.txt").read_text(encoding="utf-8") == "7"


def install(wheel: Path, folder: Path) -> str:
    """Install a wheel and what it asks for into a new environment; return its interpreter."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    run(python, "-m", "pip", "--disable-pip-version-check", "-qq", "install", str(wheel))
    return python


def make_project(folder: Path) -> Path:
    (folder / "shop").mkdir(parents=True)
    (folder / "settings.py").write_text(SETTINGS, encoding="utf-8")
    (folder / "shop" / "__init__.py").touch()
    (folder / "shop" / "handlers.py").write_text(HANDLERS, encoding="utf-8")
    return folder


def test_the_sdist_holds_what_a_packager_needs(source):
    with tarfile.open(build(source, "sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert package_files() <= names
    assert {"LICENSE", "README.md", "CHANGELOG.md", "Makefile", "pyproject.toml", "setup.cfg"} <= names
    assert {"tests/conftest.py", "tests/settings.py"} <= names
