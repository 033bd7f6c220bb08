"""The limits of a grammar in Lark, checked on its tokens: nothing of it is compiled.

Every expression matches in linear time, also where a quote or a bracket is missing.

The dialect is llguidance's (docs/syntax.md): schemas and further grammars may stand inside, after ``%json``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from pumice.errors import RequestError
from pumice.grammar.limits import (
    MAX_COUNT,
    MAX_DEPTH,
    MAX_ELEMENTS,
    MAX_RULES,
    MAX_TEXT,
    check_chain,
    check_number,
)
from pumice.grammar.schema_limits import check_regex, check_schema

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|\#[^\n]*)
    | "(?P<literal>(?:[^"\\\n]|\\.)*+)(?:"|\n|\\?\Z)
    | /(?P<regex>(?:[^/\\\n]|\\.)++)(?:/|\n|\\?\Z)
    | %(?P<directive>\w+)
    | (?P<name>[A-Za-z_@][\w-]*)
    | (?P<number>\d+)
    | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_SPACE = re.compile(r"\s*")
_OPENING, _CLOSING = "([{", ")]}"


@dataclass
class _Rules:
    """The rules of one grammar: the names in each, and how many elements it has."""

    names: dict[str, list[str]] = field(default_factory=dict)
    current: str = ""
    place: str = "grammar"
    elements: int = 0

    def begin(self, name: str) -> None:
        self.current, self.elements, self.place = name, 0, f"grammar: rule {name!r}"
        self.names.setdefault(name, [])
        check_number("grammar", "rules", len(self.names), MAX_RULES)

    def add(self, name: str = "") -> None:
        """Count an element of the current rule; ``name``: of a rule."""
        self.elements += 1
        check_number(self.place, "elements", self.elements, MAX_ELEMENTS)
        if name:
            self.names.setdefault(self.current, []).append(name)

    def check(self) -> None:
        """Follow the rules from the first on, then those that it does not reach."""
        names = {"": ["start", *self.names], **self.names}
        check_chain("grammar", "rules", "", lambda name: names.get(name, ()), str)


def check_lark(text: str) -> None:
    """Raise RequestError for a grammar beyond a limit."""
    rules, head, depth, place = _Rules(), "", 0, 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        assert token
        place, mark = token.end(), token["mark"]
        if token["space"]:
            continue
        where = rules.place
        if token["literal"] is not None:
            check_number(where, "characters of a literal", len(token["literal"]), MAX_TEXT)
            rules.add()
        elif token["regex"]:
            check_regex(where, token["regex"])
            rules.add()
        elif token["directive"] in ("json", "regex"):
            place = _check_json(where, text, place)
            rules.add()
        elif token["name"]:
            check_number("grammar", "characters of a name", len(token["name"]), MAX_TEXT)
            head = token["name"] if not depth else head
            rules.add(token["name"])
        elif token["number"]:
            check_number(where, "repetitions", int(token["number"][:20]), MAX_COUNT)
        elif mark == ":" and not depth:
            rules.begin(head)
        elif mark and mark in _OPENING:
            depth += 1
            check_number(where, "levels of parentheses", depth, MAX_DEPTH)
        elif mark and mark in _CLOSING:
            depth = max(0, depth - 1)
        elif mark == "|":
            rules.add()
    rules.check()


def _check_json(where: str, text: str, place: int) -> int:
    """Check a JSON value, a schema or the options of a regular expression; where it ends."""
    try:
        value, end = json.JSONDecoder().raw_decode(text, _SPACE.match(text, place).end())  # type: ignore[union-attr]
    except RecursionError:
        raise RequestError(f"{where}: JSON in it is nested more than {MAX_DEPTH} levels deep") from None
    except ValueError:
        return place  # the compiler says what is wrong
    check_schema(where, value)
    return end
