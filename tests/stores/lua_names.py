"""Which names a text of Lua uses that it does not declare itself."""

import re
from collections.abc import Iterator

#: What Redis gives to every script.
REDIS = {
    *("redis", "cjson", "string", "table", "math", "tonumber", "tostring", "type", "pairs", "ipairs", "unpack"),
    *("select", "pcall", "error", "next", "setmetatable", "rawget", "_G"),
}
KEYWORDS = {
    *("and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil", "not"),
    *("or", "repeat", "return", "then", "true", "until", "while"),
}

_TOKEN = re.compile(
    r"""--[^\n]*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|(?P<name>[A-Za-z_]\w*)|(?P<sign>\.\.\.|\.\.|==|~=|<=|>=|\d[\w.]*|\S)""",
    re.DOTALL,
)


def tokens(text: str) -> list[str]:
    """Return the words and signs of a text, without comments and what stands in quotes."""
    return [found.group() for found in _TOKEN.finditer(text) if found["name"] or found["sign"]]


def is_name(token: str) -> bool:
    """Tell whether a token is a name."""
    return token.isidentifier() and token not in KEYWORDS


def free_names(text: str) -> set[str]:
    """Return the names that a text uses where it has not declared them, without those of Redis."""
    return set(_Reader(tokens(text)).free()) - REDIS


class _Reader:
    """Goes through the tokens of a text, and knows which names are declared where it stands."""

    def __init__(self, found: list[str]) -> None:
        self._tokens = [*found, "", ""]
        self._at = 0
        #: What is open: how it began, and the names declared in it.
        self._open: list[tuple[str, set[str]]] = [("", set())]
        #: Names of a loop, which are declared from its `do` on.
        self._of_loop: set[str] = set()

    def free(self) -> Iterator[str]:
        """Yield each name that is used and not declared."""
        while self._tokens[self._at]:
            token = self._tokens[self._at]
            if is_name(token):
                if not self._is_field() and not any(token in names for _, names in self._open):
                    yield token
            else:
                self._go_into_or_out_of(token)
            self._at += 1

    def _is_field(self) -> bool:
        before, behind = self._tokens[self._at - 1], self._tokens[self._at + 1]
        is_key = self._open[-1][0] == "{" and before in ("{", ",", ";") and behind == "="
        return before in (".", ":") or is_key

    def _go_into_or_out_of(self, token: str) -> None:
        if token in ("{", "then", "repeat", "do"):
            names, self._of_loop = (self._of_loop, set()) if token == "do" else (set(), self._of_loop)
            self._open.append((token, names))
        elif token == "else":
            self._open[-1] = ("then", set())
        elif token in ("}", "end", "elseif"):
            self._open.pop()
        elif token == "until":
            # What was declared in the loop is seen by its condition: by what is behind that, too, but nobody reads it.
            _, names = self._open.pop()
            self._open[-1][1].update(names)
        elif token == "for":
            self._of_loop = self._names()
        elif token == "local":
            is_function = self._tokens[self._at + 1] == "function"
            self._at += is_function
            self._open[-1][1].update(self._names())
            if is_function:
                self._begin_function()
        elif token == "function":
            self._begin_function()

    def _names(self) -> set[str]:
        """Return the names that come next, one behind the other with commas between."""
        found = {self._tokens[self._at + 1]}
        self._at += 1
        while self._tokens[self._at + 1] == ",":
            self._at += 2
            found.add(self._tokens[self._at])
        return found

    def _begin_function(self) -> None:
        """Open a function of which the name, if it has one, has been read."""
        while self._tokens[self._at] != "(":
            self._at += 1
        arguments: set[str] = set()
        while self._tokens[self._at] != ")":
            self._at += 1
            arguments.add(self._tokens[self._at])
        self._open.append(("function", arguments))
