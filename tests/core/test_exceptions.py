"""Exceptions are found by their path among what is imported, whatever path somebody wrote."""

import sys

from mq_django.core.texts import LONGEST, class_name, exception_of, path_of, repr_of
from mq_django.errors import StoreError


class Outer:
    class Inner(Exception):
        pass


def test_a_known_exception_is_found(subtests):
    for path, found in [
        ("ValueError", ValueError),
        ("builtins.ValueError", ValueError),
        ("mq_django.errors.StoreError", StoreError),
        (f"{__name__}.Outer.Inner", Outer.Inner),
    ]:
        with subtests.test(path=path):
            assert exception_of(path) is found


def test_anything_else_is_none_and_imports_nothing(subtests):
    for path in ["", ".", "john.Smith", "os.system", "str", "mq_django.errors", "mq_django.errors.Nothing"]:
        with subtests.test(path=path):
            before = set(sys.modules)
            assert exception_of(path) is None
            assert set(sys.modules) == before


def test_a_long_path_is_not_taken_apart():
    assert exception_of("." * 10_000_000) is None
    assert exception_of("builtins.ValueError" + "." * LONGEST) is None


def test_a_value_is_shown_without_the_password_of_a_url():
    for value in (
        *("redis://u:secret@h/0", ["a", {"b": "redis://:secret@h"}], "redis://u:" + "secret" * 20 + "@h"),
        *("u:secret@h:1", ":secret@h", {"a": "u:secret@h"}, "redis://h?password=secret&x=1", b"u:secret@h"),
    ):
        assert "secret" not in repr_of(value, 30)
        assert repr_of(value).isprintable()


class Unreadable(type):
    """It also hides what a class statement gives to a class."""

    @property
    def __module__(cls):
        raise KeyError("__module__")

    def __getattribute__(cls, name):
        raise KeyError(name)


class Hidden(metaclass=Unreadable):
    pass


def test_a_class_is_shown_as_python_keeps_it():
    assert (path_of(Hidden), class_name(Hidden)) == (f"{__name__}.Hidden", "Hidden")
    assert path_of(type("Hidden", (), {"__module__": 5})) == "Hidden"
    assert path_of(ValueError) == "ValueError"
