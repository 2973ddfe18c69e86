"""Errors of programs in other languages, as they write them, and the class that each has."""

#: The text of an error, and its class: empty if the text does not begin with one.
FOREIGN_ERRORS = [
    ("Net::ReadTimeout: no", "Net::ReadTimeout"),
    ("A::B::C", "A::B::C"),
    ("A::B c", ""),
    ("ValueError::", "ValueError"),
    ("ValueError::1", "ValueError"),
    (r"Shop\NoSuchUser: 7", r"Shop\NoSuchUser"),
    ("A::" + "x" * 198 + ": no", ""),
]
