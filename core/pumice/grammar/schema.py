"""What a JSON schema asks of the strings of a text, each by its place."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any

from pumice.grammar.alphabet import Alphabet, UnknownRule, sets_of_pattern, sets_of_text
from pumice.grammar.place import Path
from pumice.grammar.source import JSON_OPTIONS

_KNOWN = frozenset(
    """type properties required additionalProperties items prefixItems minItems maxItems minProperties maxProperties
    minLength maxLength pattern format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf enum const anyOf
    oneOf allOf $ref $defs definitions title description default examples $schema $comment deprecated readOnly
    writeOnly""".split()  # noqa: SIM905
)  # keywords of JSON Schema whose meaning for strings is known here
_LIMITS = ("minLength", "maxLength", "pattern", "format")  # keywords
_BESIDE = ("anyOf", "oneOf", "allOf")  # keywords of schemas for the same value
_LENGTHS = {"minLength", "maxLength"}
_ASKING = {*_LIMITS, "enum", "const"}  # keywords that ask something of a string
_ELSEWHERE = {*_BESIDE, "$ref"}  # keywords of schemas that leave it to others
_FORMATS = {"hostname": r"[A-Za-z][0-9]-\."}  # patterns of the sets that a format is made of: RFC 1123, section 2.1
_ANYTHING: Mapping[str, Any] = {}
_PATHS = 1024  # whose rules are kept
_RANGES = 256  # of an alphabet, at most
_ALPHABETS = 8  # of a schema, at most
_NODES = 256  # schemas for one string, at most


@dataclass(eq=False)
class StringRule:
    """What is asked of a string: either of some schemas, or several together.

    Attributes:
        alphabet: the sets by which it tells characters apart.
        lengths: the least and the most characters, where nothing else is asked; None: more is, or no most.
        lost: seconds that masks took more than usual, by parts of the string.
    """

    alphabet: Alphabet
    lengths: tuple[int, int] | None
    lost: dict[int, float] = field(default_factory=dict)


class SchemaStrings:
    """The rules of the strings of a schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = {
            key: value for key, value in schema.items() if key != "$id"
        }  # which inside would move references
        self._rules: dict[frozenset[int], StringRule | None] = {}
        self._alphabets: set[Alphabet] = set()
        self._understood: set[int] = set()  # ids of schemas
        self.rule = lru_cache(_PATHS)(self._rule)

    def _rule(self, path: Path) -> StringRule | None:
        """Of the strings at a path; None where it is not known, or nothing is asked but to be one of some texts."""
        try:
            nodes = self._beside([self._schema])
            for name in path:
                nodes = self._beside(inner for node in nodes for inner in _inner(node, name))
            key = frozenset(map(id, nodes))
            if key not in self._rules:
                self._rules[key] = self._few(_rule_of(nodes))
            return self._rules[key]
        except UnknownRule:
            return None

    def _few(self, rule: StringRule | None) -> StringRule | None:
        """The rule, unless there are many alphabets already: each is a matcher of its own."""
        if rule and len(self._alphabets) < _ALPHABETS:
            self._alphabets.add(rule.alphabet)
        return rule if rule and rule.alphabet in self._alphabets else None

    def _beside(self, nodes: Iterable[Any]) -> list[Mapping[str, Any]]:
        """Schemas, and those for the same value."""
        found: dict[int, Mapping[str, Any]] = {}
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if node is False or id(node) in found:
                continue
            if node is True:
                node = _ANYTHING
            if len(found) == _NODES or not self._understands(node):
                raise UnknownRule(node)
            found[id(node)] = node
            waiting += [inner for key in _BESIDE for inner in node.get(key, ())]
            waiting += [self._at(node["$ref"])] if "$ref" in node else []
        return list(found.values())

    def _understands(self, node: Any) -> bool:
        if id(node) not in self._understood and _is_understood(node):
            self._understood.add(id(node))
        return id(node) in self._understood

    def _at(self, pointer: Any) -> Any:
        """What a reference refers to."""
        root, *names = str(pointer).split("/")
        try:
            if root != "#" or set(str(pointer)) & set("~%"):
                raise KeyError(pointer)
            return reduce(lambda node, name: node[int(name) if isinstance(node, list) else name], names, self._schema)
        except (LookupError, TypeError, ValueError):
            raise UnknownRule(pointer) from None


def strings_of(source: str) -> SchemaStrings | None:
    """Of a grammar in llguidance's form. None if it is no schema, or none that asks much of a string."""
    if not any(f'"{key}"' in source for key in _LIMITS):
        return None
    try:
        [grammar] = json.loads(source)["grammars"]
        schema = grammar["json_schema"]
        options = schema.pop("x-guidance")
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return SchemaStrings(schema) if options == JSON_OPTIONS else None


def _inner(node: Mapping[str, Any], name: str | None) -> Iterator[Any]:
    """Schemas of a member of an object, or of the elements of an array."""
    if name is None:
        yield from node.get("prefixItems", ())
        yield node.get("items", True)
    elif "\\" in name:  # may be written in several ways
        raise UnknownRule(name)
    elif name in node.get("properties", {}):
        yield node["properties"][name]
    else:
        yield node.get("additionalProperties", True)


def _rule_of(nodes: Iterable[Mapping[str, Any]]) -> StringRule | None:
    nodes = [node for node in nodes if _may_be_string(node)]
    if not any(key in node for node in nodes for key in _LIMITS):
        return None
    texts = "".join(text for node in nodes for text in _literals(node) if isinstance(text, str))
    patterns = [node["pattern"] for node in nodes if "pattern" in node]
    formats = [node["format"] for node in nodes if "format" in node]
    if not set(formats) <= _FORMATS.keys():
        raise UnknownRule(formats)
    sets = map(sets_of_pattern, [*patterns, *map(_FORMATS.__getitem__, formats)])
    alphabet = sets_of_text(texts).union(*sets)
    if sum(map(len, alphabet)) > _RANGES:
        raise UnknownRule(alphabet)
    return StringRule(alphabet, _lengths_of(nodes))


def _lengths_of(nodes: Iterable[Mapping[str, Any]]) -> tuple[int, int] | None:
    """Where one schema decides, and only counts characters."""
    deciding = [node for node in nodes if not node.keys() & _ELSEWHERE or node.keys() & _ASKING]
    if len(deciding) != 1 or deciding[0].keys() & (_ASKING | _ELSEWHERE) - _LENGTHS:
        return None
    least, most = deciding[0].get("minLength", 0), deciding[0].get("maxLength")
    return (least, most) if isinstance(least, int) and isinstance(most, int) else None


def _may_be_string(node: Mapping[str, Any]) -> bool:
    kinds = node.get("type", "string")
    return "string" in ([kinds] if isinstance(kinds, str) else kinds)


def _literals(node: Mapping[str, Any]) -> list[Any]:
    """The values of which it has to be one."""
    return [*node.get("enum", ()), *([node["const"]] if "const" in node else ())]


def _is_understood(node: Any) -> bool:
    if not isinstance(node, Mapping) or not node.keys() <= _KNOWN:
        return False
    return not any(isinstance(value, dict | list) for value in _literals(node))
