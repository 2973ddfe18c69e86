"""A supervisor's folder ends with it, or with the next supervisor."""

import os
import subprocess
import sys

import pytest

from mq_django.consumers.processes import private_folder

KILLED = """
import os, sys
from pathlib import Path
from mq_django.consumers.processes import private_folder
with private_folder("shop-", Path(sys.argv[1])) as folder:
    (folder / "file").touch()
    os.kill(os.getpid(), 9)
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_it_is_private_and_removed_with_its_files(tmp_path):
    with private_folder("shop-", tmp_path) as folder:
        assert folder.name.startswith("shop-")
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "file").touch()
        assert names(tmp_path) == [folder.name]
    assert names(tmp_path) == []


def test_those_in_use_stay_and_that_of_a_killed_process_goes(tmp_path):
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False).returncode == -9
    (abandoned,) = names(tmp_path)
    with private_folder("shop-", tmp_path) as first:
        assert names(tmp_path) == [first.name]
        assert first.name != abandoned
        with private_folder("shop-", tmp_path) as second:
            assert names(tmp_path) == sorted([first.name, second.name])


def test_others_are_left_alone(tmp_path):
    (tmp_path / "other").mkdir()
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").touch()
    (tmp_path / "shop-link").symlink_to(target)
    with private_folder("shop-", tmp_path):
        pass
    assert names(tmp_path) == ["other", "shop-link", "target"]
    assert (target / "file").exists()


def test_a_parent_that_is_missing_is_created_and_one_that_is_no_folder_is_an_error(tmp_path):
    with private_folder("shop-", tmp_path / "a" / "b") as folder:
        assert folder.is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"), private_folder("shop-", tmp_path / "file"):
        pass


def test_a_folder_that_is_gone_at_the_end_is_no_error(tmp_path):
    with private_folder("shop-", tmp_path) as folder:
        os.rmdir(folder)  # noqa: PTH106
