import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mq_django
from mq_django import testing

pytestmark = pytest.mark.versions

PACKAGES = [mq_django, testing]


def test_the_table_the_list_and_the_stub_name_the_same():
    for package in PACKAGES:
        stub = Path(package.__file__).with_suffix(".pyi").read_text()
        imported = [node for node in ast.walk(ast.parse(stub)) if isinstance(node, ast.ImportFrom)]
        stubbed = {alias.asname: node.module for node in imported for alias in node.names}
        assert stubbed == package._PUBLIC, package
        assert sorted(package._PUBLIC) == package.__all__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        mq_django.no_such_name  # noqa: B018


def test_importing_the_package_runs_nothing():
    ours = "m.startswith(('django', 'redis', 'mq_django.'))"
    code = f"import sys, mq_django; print(sorted(m for m in sys.modules if {ours}))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=280)
    assert found.stdout.strip() == "[]"
