"""Each mutation of the table still fits its files, and names modules or a scenario that exist."""

import re
import shutil

from tests.mutations.__main__ import ROOT
from tests.mutations.table import mutations


def test_each_mutation_fits_its_files_and_names_what_exists(tmp_path):
    played = (ROOT / "tests" / "chaos" / "scenarios.py").read_text(encoding="utf-8")
    wrong, scenarios = [], {f"scenario:{name}" for name in re.findall(r'Scenario\(\s*name="(.+?)"', played)}
    for row in mutations():
        for name in row.files:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
        try:
            row.apply(tmp_path)
        except ValueError as error:
            wrong.append(str(error))
        modules = [word.partition("::")[0] for word in row.tests.split() if word.startswith("tests/")]
        wrong += [f"{row.name}: {module} is no more" for module in modules if not (ROOT / module).exists()]
        wrong += [f"{row.name}: {row.tests}"] if not modules and row.tests not in scenarios else []

    assert wrong == []


def test_no_two_mutations_have_one_name():
    names = [row.name for row in mutations()]

    assert len(names) == len(set(names))
