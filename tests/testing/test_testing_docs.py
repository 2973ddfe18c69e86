"""The examples of docs/testing.md, run as tests of a project."""

import re
from pathlib import Path

from mq_django.testing import MQ

PAGE = (Path(__file__).parent.parent.parent / "docs" / "testing.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"<!-- test: (\w+\.py) -->\n```python\n(.*?)```", PAGE, re.S))


def test_every_method_of_the_kit_is_named():
    methods = {name for name in dir(MQ) if not name.startswith("_")}
    assert sorted(name for name in methods if not re.search(rf"`{name}(\(\))?`", PAGE)) == []


def test_each_example_passes(project, run, configured_keys):
    for name, text in EXAMPLES.items():
        (project / "tests" / name).write_text(text)
    output = run("-m", "pytest", "tests", "-rA", "-W", "error").stdout
    assert {Path(name).name for name in re.findall(r"^PASSED (\S+\.py)::", output, re.M)} == EXAMPLES.keys()
    assert configured_keys() == []


def test_those_of_djangos_test_case_run_without_pytest(project, run):
    (project / "tests" / "test_case.py").write_text(EXAMPLES["test_case.py"])
    (project / "tests" / "test_async.py").write_text(EXAMPLES["test_async.py"])
    assert "Ran 2 tests" in run("manage.py", "test", "tests").stderr
