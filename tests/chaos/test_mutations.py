"""Each mutation still takes out what it names, in the files as they are."""

import shutil

import pytest

from tests.chaos.mutation import Mutation
from tests.chaos.mutations import MUTATIONS, ROOT, mutate


def test_a_mutation_fits_each_of_its_files(tmp_path, subtests):
    for number, mutation in enumerate(MUTATIONS):
        with subtests.test(mutation.name):
            folder = tmp_path / str(number)
            names = {*mutation.files, *(name for name, _, _ in mutation.also)}
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / name)
            mutate(folder, mutation)  # refuses a file that it does not fit
            assert all((folder / name).read_bytes() != (ROOT / name).read_bytes() for name in names)


def test_a_mutation_that_does_not_fit_any_more_is_an_error(tmp_path):
    (tmp_path / "script.lua").write_text("if right then\nif wrong then\nif wrong then\n")
    twice = Mutation(name="", files=["script.lua"], pattern="if wrong then", replacement="", scenario="")
    gone = Mutation(name="", files=["script.lua"], pattern="if nothing then", replacement="", scenario="")
    for mutation, found in [(twice, 2), (gone, 0)]:
        with pytest.raises(ValueError, match=f"script.lua has {found} in place of 1 of"):
            mutate(tmp_path, mutation)
