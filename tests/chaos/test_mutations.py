"""Each mutation still takes out what it names, in the files as they are."""

import shutil

import pytest

from tests.chaos.mutation import Mutation
from tests.chaos.mutations import MUTATIONS, ROOT, mutate


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name.partition(":")[0])
def test_a_mutation_fits_each_of_its_files(mutation, tmp_path):
    names = {*mutation.files, *(name for name, _, _ in mutation.also)}
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    mutate(tmp_path, mutation)  # refuses a file that it does not fit
    for name in names:
        assert (tmp_path / name).read_bytes() != (ROOT / name).read_bytes()


def test_a_mutation_that_does_not_fit_any_more_is_an_error(tmp_path):
    (tmp_path / "script.lua").write_text("if right then\nif wrong then\nif wrong then\n")
    twice = Mutation(name="", files=["script.lua"], pattern="if wrong then", replacement="", scenario="")
    gone = Mutation(name="", files=["script.lua"], pattern="if nothing then", replacement="", scenario="")
    for mutation, found in [(twice, 2), (gone, 0)]:
        with pytest.raises(ValueError, match=f"script.lua has {found} in place of 1 of"):
            mutate(tmp_path, mutation)
