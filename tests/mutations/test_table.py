"""Each mutation of the table still fits its file, and names modules that exist."""

from tests.mutations.__main__ import ROOT, all_cases
from tests.mutations.table import mutations


def test_each_mutation_fits_its_file_and_names_modules_that_exist():
    wrong = []
    for row in mutations():
        try:
            row.applied((ROOT / row.file).read_text(encoding="utf-8"))
        except ValueError as error:
            wrong.append(str(error))
        modules = [word.partition("::")[0] for word in row.tests.split() if word.startswith("tests/")]
        wrong += [f"{row.name}: {module} is no more" for module in modules if not (ROOT / module).exists()]

    assert wrong == []


def test_no_two_mutations_have_one_name():
    names = [case.name for case in all_cases()]

    assert len(names) == len(set(names))
