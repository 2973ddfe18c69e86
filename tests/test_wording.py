"""Names and phrases that this code does not use: words of its own for what has a standard name, and turned sentences.

`tests/wording_exceptions.txt` has the files that still do, or rightly do. None is added, and one that no longer does is
taken out: `WRITE_GOLDEN=1 make test PYTEST=tests/test_wording.py` writes what is left.
"""

import ast
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.golden.files import WRITE
from tests.syntax_trees import nodes_of

ROOT = Path(__file__).parent.parent
EXCEPTIONS = Path(__file__).parent / "wording_exceptions.txt"
SUFFIXES = {".py", ".pyi", ".lua", ".md", ".html", ".js"}
ROOTS = ["mq_django", "docs", "example_project", "README.md", "CONTRIBUTING.md", "SECURITY.md"]

#: Parts of names, of files and in Python.
NAMES = frozenset(
    (
        *("ward", "wards", "ear", "ears", "keeper", "kept", "story", "stories", "wording", "verdict", "verdicts"),
        *("family", "kin", "mourn", "relieve", "doom", "remains", "heir", "stray", "stranger", "strangers", "adopt"),
        *("condemn", "condemned", "hurry", "hush", "bell", "survey", "surveyed", "glance", "leap", "meant", "refusals"),
        *("rooms", "freed", "deaf", "hearing", "readier", "told", "vouch", "roll", "some", "wanted", "takes", "spell"),
        *(
            "tidy",
            "place",
            "places",
            "placed",
            "room",
            "lane",
            "lanes",
            "look",
            "looks",
            "urgent",
            "deadstory",
            "courier",
        ),
        *("wire", "trip", "trips", "lacks", "lacking", "passes", "whereabouts", "halving", "redriver"),
    )
)
#: The fields of Python's syntax that have them.
NAMING = ("id", "attr", "name", "arg", "asname", "module")

#: In all text.
PHRASES = [
    *(r"\bwards?\b", r"\bcondemn", r"\bmourn", r"\bkin\b", r"\bheir\b", r"\bstrangers?\b", r"\bvouch", r"\bin life\b"),
    *(r"\b[Mm]end(ed|s)?\b", r"on the wall", r"goes? one way", r"takes? up the new code", r"without the other"),
    *(r"every promise", r"what is missed", r"later and later", r"to be looked at", r"\b(is|are) well\b", r"\blives\."),
    *(r"Hold the numbers", r"Ask it\b", r"no longer ours", r"handed out unseen", r"does not live", r"so many a second"),
    *(r"as many a second", r"Nothing there", r"Say that you mean", r"Look further", r"Show everything"),
    *(
        r"stands in its way",
        r"bad roads",
        r"waits for Redis\b",
        r"found silent",
        r"stops? by itself",
        r"[Ww]ho lost it",
    ),
    r"[Ww]hat waits for",
    # Begin with the subject, and name it: "Rows that fail stay", not "What fails stays".
    *(
        r"(?m:(?:^|[.:] )(?:What|Who) (?!(?:is|are|does|do|did|can|should|if|to|happens)\b)[^?\n]{3,}?\.)",
        r"\b[Ww]hoever\b",
    ),
    *(r"(?m:(?:^|\. )Of (?:a|an|the|such|each)\b)", r"\bof that\b", r"\bthose of\b", r"\bthat one\b", r"in the dark\b"),
    *(r"\bthe most (?:bytes|messages|seconds|entries)\b", r"\bthe \w+ of the \w+ of the \w+ of\b"),
]
PROSE = re.compile(r'(?<!\w)"""(?s:.*?)"""|^ *#.*$|  # .*$', re.MULTILINE)


def files() -> Iterator[Path]:
    for root in (ROOT / name for name in ROOTS):
        inside = [root] if root.is_file() else sorted(root.rglob("*"))
        yield from (
            path for path in inside if path.suffix in SUFFIXES and not {"migrations", "node_modules"} & {*path.parts}
        )


def parts(name: str) -> set[str]:
    return {part.lower() for part in re.findall(r"[A-Z]?[a-z]+", name)}


def names(path: Path, text: str) -> set[str]:
    """Return the names of the list in the name of a file, and in what its code names."""
    found = NAMES.intersection(path.stem.split("_"))
    # Most files have none of the words outside of docstrings and comments, and need not be parsed.
    if path.suffix == ".py" and not NAMES.isdisjoint(parts(PROSE.sub("", text))):
        named = {getattr(node, field, None) or "" for _, node in nodes_of([path], ast.AST) for field in NAMING}
        found |= NAMES & parts(" ".join(named))
    return found


def found() -> dict[str, set[str]]:
    """Return the files in which each name and phrase stands."""
    places = defaultdict(set)
    for path in files():
        text = path.read_text(encoding="utf-8")
        where = path.relative_to(ROOT).as_posix()
        for name in names(path, text):
            places[name].add(where)
        for phrase in PHRASES:
            # A letter is found several times as fast as a boundary, and most files do not have the letters.
            if re.search(phrase.removeprefix(r"\b"), text) and re.search(phrase, text):
                places[phrase].add(where)
    return places


def excepted() -> dict[str, set[str]]:
    lines = EXCEPTIONS.read_text(encoding="utf-8").splitlines()
    split = [line.partition(": ") for line in lines if not line.startswith("#")]
    return {word: set(places.split()) for word, _, places in split}


def test_words_that_have_a_standard_name_are_not_used():
    used = found()
    if os.environ.get(WRITE):
        head = "# Files in which a name or phrase still stands: see tests/test_wording.py.\n"
        lines = [f"{word}: {' '.join(sorted(used[word]))}\n" for word in sorted(used)]
        EXCEPTIONS.write_text(head + "".join(lines), encoding="utf-8")
    allowed = excepted()
    more = {word: sorted(places - allowed.get(word, set())) for word, places in used.items()}
    assert {word: places for word, places in more.items() if places} == {}, "A reader knows the standard word."
    fewer = {word: sorted(places - used.get(word, set())) for word, places in allowed.items()}
    assert {word: places for word, places in fewer.items() if places} == {}


#: Text, and what is found in it.
SAID = [
    ("told = 1\n", {"told"}),
    ("class WardKeeper:\n    pass\n", {"ward", "keeper"}),
    ('"""The queue is well."""\n', {r"\b(is|are) well\b"}),
    ("retold = something = 1\n", set()),
]


def test_a_name_or_a_phrase_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.test_wording.ROOT", tmp_path)
    monkeypatch.setattr("tests.test_wording.ROOTS", ["code.py"])
    for text, said in SAID:
        (tmp_path / "code.py").write_text(text)
        assert found() == {word: {"code.py"} for word in said}, text
