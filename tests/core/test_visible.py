"""Text from elsewhere, with everything that would hide or reorder it spelled out."""

from mq_django.core.texts import escape, runs, truncate


def test_what_would_hide_is_spelled_out(subtests):
    for text, spelled in [
        *(("plain text", "plain text"), ("Zürich 北京 שלום 🙂", "Zürich 北京 שלום 🙂")),
        *(("abc\u202egnp.exe", "abc<U+202E>gnp.exe"), ("a\x00b\x1b[31m", "a<U+0000>b<U+001B>[31m")),
        ("zero\u200bwidth\ufeff", "zero<U+200B>width<U+FEFF>"),
        *(("two\nlines\u2028more", "two<U+000A>lines<U+2028>more"), ("half \ud800 pair", "half <U+D800> pair")),
        ("", ""),
    ]:
        with subtests.test(text=text):
            assert escape(text) == spelled


def test_lines_stay_where_lines_are_kept():
    assert escape("a\n\tb\r", lines=True) == "a\n\tb<U+000D>"


def test_runs_tell_what_is_spelled_out():
    assert list(runs("ab\u202ec\u202d")) == [("ab", False), ("U+202E", True), ("c", False), ("U+202D", True)]


def test_a_cut_says_so():
    assert truncate("abcdef", 6) == "abcdef"
    assert truncate("abcdef", 5) == "abcd…"
