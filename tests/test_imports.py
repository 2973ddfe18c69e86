"""What other programs of the repository import from the package exists, also where the fast tests do not run them."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from mq_django.errors import MissingDependency

ROOT = Path(__file__).parent.parent
FOLDERS = ("tests", "benchmarks", "example_project")

#: Django imports these in apps.py of a project, before the models of any app.
WITHOUT_MODELS = ["mq_django", "mq_django.inspector", "mq_django.workflows", "mq_django.observability.problem_watch"]


def exists(module, name):
    try:
        return hasattr(import_module(module), name) or bool(import_module(f"{module}.{name}"))
    except ImportError:
        return False
    except MissingDependency:
        # Of a package that is not installed here. CI runs this with all of them, too.
        return True


#: To parse all files for this takes longer than any other test of the repository.
IMPORT = re.compile(r"^ *from (mq_django[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)


def test_every_name_that_is_imported_exists():
    files = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    places = {
        (module, name.split()[0]): path.relative_to(ROOT).as_posix()
        for path in files
        for module, names in IMPORT.findall(path.read_text(encoding="utf-8"))
        for name in re.sub(r"#.*|[()]", "", names).split(",")
        if name.strip()
    }
    assert len(places) > 500
    assert {found: place for found, place in places.items() if not exists(*found)} == {}


def test_what_apps_py_of_a_project_may_import_needs_no_models():
    code = f"from django.conf import settings; settings.configure(); import {', '.join(WITHOUT_MODELS)}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
