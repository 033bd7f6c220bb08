"""GBNF, the notation of grammars of llama.cpp, as Lark in the dialect of llguidance.

Defined in llama.cpp's grammars/README.md. Line breaks are white space: a rule ends where the next ``name ::=`` begins.
One pass over the text makes tokens, one over the tokens makes Lark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pumice.grammar.limits import MAX_COUNT, MAX_DEPTH, MAX_ELEMENTS, MAX_RULES, MAX_TEXT, check_number

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|\#[^\n]*)
    | (?P<rule>[\w-]++)\s*+::=
    | (?P<name>[\w-]++)
    | "(?P<literal>(?:[^"\\]|\\.)*)"
    | \[(?P<class>(?:[^\]\\]|\\.)*)\]
    | \{\s*+(?P<least>\d++)\s*+(?P<comma>,?)\s*+(?P<most>\d*+)\s*+\}
    | (?P<mark>[.()|*+?])
    """,
    re.VERBOSE | re.DOTALL,
)
_CHARACTER = re.compile(
    r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([][\"\\nrt^-]))|([^\\])", re.DOTALL
)
_NAMED = {"n": "\n", "r": "\r", "t": "\t"}
_ANY = r"/[^\x00]/"  # a dot is any character, also the end of a line


@dataclass
class _Rule:
    """A rule while it is read: ``parts`` is Lark but for the names of rules, which stand in tuples."""

    name: str
    parts: list[str | tuple[str]] = field(default_factory=list)
    depth: int = 0
    repeatable: bool = False  # the last part is an element without a repetition
    empty: bool = True  # nothing stands in this alternative yet
    elements: int = 0

    def add(self, part: str | tuple[str]) -> None:
        """Add an element."""
        self.elements += 1
        check_number(f"grammar: rule {self.name!r}", "elements", self.elements, MAX_ELEMENTS)
        self.parts.append(part)
        self.repeatable, self.empty = True, False

    def open(self) -> None:
        self.depth += 1
        check_number(f"grammar: rule {self.name!r}", "levels of parentheses", self.depth, MAX_DEPTH)
        self.elements += 1
        self.parts.append("(")
        self.repeatable, self.empty = False, True

    def close(self) -> None:
        if not self.depth:
            raise ValueError(f"rule {self.name!r}: ')' without '('")
        self.depth -= 1
        self._end_alternative()
        self.parts.append(")")
        self.repeatable, self.empty = True, False

    def either(self) -> None:
        self._end_alternative()
        check_number(f"grammar: rule {self.name!r}", "elements", self.elements + 1, MAX_ELEMENTS)
        self.elements += 1
        self.parts.append("|")
        self.repeatable, self.empty = False, True

    def repeat(self, suffix: str) -> None:
        if not self.repeatable:
            raise ValueError(f"rule {self.name!r}: {suffix!r} does not follow an element")
        self.parts.append(suffix)
        self.repeatable = False

    def end(self) -> None:
        if self.depth:
            raise ValueError(f"rule {self.name!r}: '(' without ')'")
        self._end_alternative()

    def _end_alternative(self) -> None:
        if self.empty:
            self.parts.append('""')

    @property
    def names(self) -> Iterator[str]:
        """The rules that it names."""
        return (part[0] for part in self.parts if isinstance(part, tuple))


def gbnf_to_lark(text: str) -> str:
    """The Lark grammar of one in GBNF. Raises ValueError, which says what is wrong, or RequestError for a limit."""
    rules = _read(text)
    if "root" not in rules:
        raise ValueError("there is no rule 'root', with which a grammar begins")
    for rule in rules.values():
        if missing := next((name for name in rule.names if name not in rules), None):
            raise ValueError(f"rule {rule.name!r}: there is no rule {missing!r}")
    names = _lark_names(rules)
    lines = [
        f"{names[rule.name]}: {' '.join(names[part[0]] if isinstance(part, tuple) else part for part in rule.parts)}"
        for rule in rules.values()
    ]
    return "%llguidance {}\n" + "\n".join(lines) + "\n"


def _read(text: str) -> dict[str, _Rule]:
    """The rules by their names; of several of one name the last, as llama.cpp has it."""
    rules: dict[str, _Rule] = {}
    rule, place = None, 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            raise ValueError(f"line {text.count(chr(10), 0, place) + 1}: {text[place : place + 20]!r} is not GBNF")
        place = token.end()
        if token["rule"]:
            if rule:
                rule.end()
            rule = rules[token["rule"]] = _Rule(token["rule"])
            check_number("grammar", "rules", len(rules), MAX_RULES)
        elif token.lastgroup != "space":
            if rule is None:
                raise ValueError(f"expected a rule, 'name ::= ...', not {token[0][:20]!r}")
            _take(rule, token)
    if rule:
        rule.end()
    return rules


def _take(rule: _Rule, token: re.Match[str]) -> None:
    """Add a token to a rule."""
    mark = token["mark"]
    check_number(f"grammar: rule {rule.name!r}", "characters of one element", len(token[0]), MAX_TEXT)
    if token["name"]:
        rule.add((token["name"],))
    elif token["literal"] is not None:
        rule.add(json.dumps("".join(chr(code) for code, _ in _codes(token["literal"])), ensure_ascii=False))
    elif token["class"] is not None:
        rule.add(_class(token["class"]))
    elif token["least"]:
        rule.repeat(_repetition(rule, token))
    elif mark == ".":
        rule.add(_ANY)
    elif mark == "(":
        rule.open()
    elif mark == ")":
        rule.close()
    elif mark == "|":
        rule.either()
    else:
        rule.repeat(mark)


def _repetition(rule: _Rule, token: re.Match[str]) -> str:
    digits = token["least"], token["most"]
    least, most = (int(text[:20] or 0) for text in digits)
    check_number(f"grammar: rule {rule.name!r}", "repetitions", max(least, most), MAX_COUNT)
    if not token["comma"]:
        if token["most"]:
            raise ValueError(f"rule {rule.name!r}: {token[0]!r} has no comma between its numbers")
        return f"{{{least}}}"
    if token["most"] and most < least:
        raise ValueError(f"rule {rule.name!r}: {token[0]!r} has a maximum below its minimum")
    return f"{{{least},{most if token['most'] else ''}}}"


def _codes(text: str) -> Iterator[tuple[int, bool]]:
    """The code points of a literal or a class, each with whether an escape stands for it."""
    place = 0
    while place < len(text):
        character = _CHARACTER.match(text, place)
        if character is None:
            raise ValueError(f"unknown escape {text[place : place + 2]!r} in {text[:40]!r}")
        place = character.end()
        digits = character[1] or character[2] or character[3]
        code = (
            int(digits, 16) if digits else ord(_NAMED.get(character[4], character[4]) if character[4] else character[5])
        )
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise ValueError(f"{character[0]} is not a character of Unicode")
        yield code, character[5] is None


def _class(text: str) -> str:
    """A class as a regular expression between slashes."""
    codes = list(_codes(text))
    negated = codes[:1] == [(ord("^"), False)]
    ranges, place = [], int(negated)
    while place < len(codes):
        is_range = codes[place + 1 : place + 2] == [(ord("-"), False)] and place + 2 < len(codes)
        low, high = codes[place][0], codes[place + 2 if is_range else place][0]
        if high < low:
            raise ValueError(f"[{text[:40]}]: the range {chr(low)!r}-{chr(high)!r} is empty")
        ranges.append(f"\\x{{{low:x}}}-\\x{{{high:x}}}" if is_range else f"\\x{{{low:x}}}")
        place += 3 if is_range else 1
    if not ranges:
        raise ValueError(f"[{text}]: a class without characters")
    return f"/[{'^' * negated}{''.join(ranges)}]/"


def _lark_names(rules: dict[str, _Rule]) -> dict[str, str]:
    """The names in Lark: in capitals, which makes it one regular expression, where no rule leads back to itself."""
    users: dict[str, list[str]] = {name: [] for name in rules}
    waits = dict.fromkeys(rules, 0)  # rules that it names and that are not known to be regular
    for rule in rules.values():
        for name in set(rule.names):
            users[name].append(rule.name)
            waits[rule.name] += 1
    regular = [name for name, n in waits.items() if not n and name != "root"]
    for name in regular:
        for user in users[name]:
            waits[user] -= 1
            if not waits[user] and user != "root":
                regular.append(user)
    names = {name: f"r{number}_{re.sub(r'[^a-z0-9]', '_', name.lower())}" for number, name in enumerate(rules)}
    return {**names, **{name: names[name].upper() for name in regular}, "root": "start"}
