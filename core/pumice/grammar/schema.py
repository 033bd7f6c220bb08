"""What a JSON schema asks of the strings of a text, each by its place."""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Any

from pumice.grammar.alphabet import Alphabet, UnknownRule, sets_of_pattern, sets_of_text
from pumice.grammar.place import Path
from pumice.grammar.source import JSON_OPTIONS, SPACED_OPTIONS

logger = logging.getLogger("pumice")

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
_COUNTED = re.compile(r"\{(\d+),(\d+)\}")
_OF_ARRAYS = frozenset(["items", "prefixItems"])  # keywords
_OTHER = ""  # a name of a member
_ANYTHING: Mapping[str, Any] = {}
_PATHS = 1024  # whose rules are kept
_FIRST_PATHS = 256  # whose alphabets are found before anything is written
_RANGES = 256  # of an alphabet, at most
_ALPHABETS = 8  # of a schema, at most
_NODES = 256  # schemas for one string, at most


@dataclass(eq=False)
class StringRule:
    """What is asked of a string: either of some schemas, or several together.

    Attributes:
        alphabet: the sets by which it tells characters apart.
        lengths: the least and the most characters, where nothing else is asked; None: more is, or no most.
        by_words: make masks from words. Walks through a vocabulary are long where characters are counted up to a most.
    """

    alphabet: Alphabet
    lengths: tuple[int, int] | None
    by_words: bool


class SchemaStrings:
    """The rules of the strings of a schema.

    Attributes:
        alphabets: those of strings whose masks are made from words, of the first paths that the schema knows.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = {
            key: value for key, value in schema.items() if key != "$id"
        }  # which inside would move references
        self._rules: dict[frozenset[int], StringRule | None] = {}
        self._understood: set[int] = set()  # ids of schemas
        self.alphabets = frozenset(itertools.islice(dict.fromkeys(self._bounded()), _ALPHABETS))
        self.rule = lru_cache(_PATHS)(self._chosen)

    def _chosen(self, path: Path) -> StringRule | None:
        """As ``_rule``; from words only where they are made when the grammar is compiled."""
        rule = self._rule(path)
        if rule and rule.by_words and rule.alphabet not in self.alphabets:
            rule = replace(rule, by_words=False)
        masks = "words" if rule and rule.by_words else "the vocabulary"
        logger.debug("grammar: strings at %s: masks from %s", list(path), masks)
        return rule

    def _rule(self, path: Path) -> StringRule | None:
        """Of the strings at a path; None where it is not known, or nothing is asked but to be one of some texts."""
        try:
            nodes = self._nodes(path)
            key = frozenset(map(id, nodes))
            if key not in self._rules:
                self._rules[key] = _rule_of(nodes)
            return self._rules[key]
        except UnknownRule:
            return None

    def _nodes(self, path: Path) -> list[Mapping[str, Any]]:
        """The schemas of the values at a path. Raises UnknownRule."""
        nodes = self._beside([self._schema])
        for name in path:
            nodes = self._beside(inner for node in nodes for inner in _inner(node, name))
        return nodes

    def _bounded(self) -> Iterator[Alphabet]:
        """The alphabets of strings whose masks should be made from words, as they are found."""
        paths, seen = list[Path]([()]), set[frozenset[int]]()
        for path in paths:
            try:
                nodes = self._nodes(path)
            except UnknownRule:
                continue
            key = frozenset(map(id, nodes))
            if key not in seen:
                seen.add(key)
                rule = self._rule(path)
                if rule and rule.by_words:
                    yield rule.alphabet
                names = dict.fromkeys(name for node in nodes for name in _names(node))
                paths += ((*path, name) for name in itertools.islice(names, _FIRST_PATHS - len(paths)))

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
    return SchemaStrings(schema) if options in (JSON_OPTIONS, SPACED_OPTIONS) else None


def _names(node: Mapping[str, Any]) -> Iterator[str | None]:
    """The names of members that a schema knows, one for all others, and None for the elements of arrays."""
    if not node.keys().isdisjoint(_OF_ARRAYS):
        yield None
    yield from node.get("properties", ())
    if isinstance(node.get("additionalProperties"), Mapping):
        yield _OTHER


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
    lengths, most = _lengths_of(nodes), any("maxLength" in node for node in nodes)
    return StringRule(alphabet, lengths, most or bool(formats) or any(map(_counts_to_a_most, patterns)))


def _counts_to_a_most(pattern: str) -> bool:
    """Whether a pattern has a part that may come several numbers of times, but not any."""
    return any(least != most for least, most in _COUNTED.findall(pattern))


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
