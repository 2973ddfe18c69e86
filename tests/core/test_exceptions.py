"""Exceptions are found by their path among what is imported, whatever path somebody wrote."""

import sys

import pytest

from mq_django.core.exceptions import LONGEST, exception_of
from mq_django.errors import StoreError


class Outer:
    class Inner(Exception):
        pass


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("ValueError", ValueError),
        ("builtins.ValueError", ValueError),
        ("mq_django.errors.StoreError", StoreError),
        (f"{__name__}.Outer.Inner", Outer.Inner),
    ],
)
def test_a_known_exception_is_found(path, found):
    assert exception_of(path) is found


@pytest.mark.parametrize(
    "path",
    ["", ".", "john.Smith", "os.system", "str", "mq_django.errors", "mq_django.errors.Nothing"],
)
def test_anything_else_is_none_and_imports_nothing(path):
    before = set(sys.modules)
    assert exception_of(path) is None
    assert set(sys.modules) == before


def test_a_long_path_is_not_taken_apart():
    assert exception_of("." * 10_000_000) is None
    assert exception_of("builtins.ValueError" + "." * LONGEST) is None
