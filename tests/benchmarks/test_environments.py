"""The environments of peers: the Python that each gets."""

import sys

from benchmarks import environments

OURS = "%d.%d" % sys.version_info[:2]  # noqa: UP031 - as the interpreter writes it


def test_the_python_of_the_suite_is_taken_if_it_is_new_enough(subtests):
    for oldest in ["", "3.9", OURS]:
        with subtests.test(oldest=oldest):
            assert environments._python(oldest) == sys.executable


def test_of_newer_ones_the_oldest_that_is_there_is_taken(monkeypatch):
    asked = []
    monkeypatch.setattr(environments, "NEWER", ("3.97", "3.98", "3.99"))
    monkeypatch.setattr(environments, "interpreter", lambda version: asked.append(version) or f"/usr/python{version}")
    assert environments._python("3.98") == "/usr/python3.98"
    assert asked == ["3.98"]


def test_a_peer_without_its_python_is_left_out_with_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(environments, "HOME", tmp_path)
    monkeypatch.setattr(environments, "interpreter", lambda version: None)
    assert environments.install("q", ["q==1.0"], oldest_python="3.99") == "Python 3.99 or newer is not installed"
    assert list(tmp_path.iterdir()) == []


def test_an_interpreter_is_of_the_version_that_was_asked_for():
    assert environments.interpreter("3.97") is None
