"""GBNF, Lark and regular expressions: an error, or a grammar that allows a next token; regexes match their texts."""

import re
from collections.abc import Iterable
from contextlib import suppress

from fuzz.draw import Draw
from fuzz.grammars import check_message, walk
from fuzz.growth import check_linear, chosen
from gbnf_grammars import GRAMMARS
from pumice.errors import RequestError
from pumice.grammar import grammar_source
from pumice.grammar.gbnf import gbnf_to_lark

MODULES = ("pumice.grammar.gbnf", "pumice.grammar.forms", "pumice.grammar.matcher", "pumice.grammar.compiler")
MAX_LEN = 400
TOKENS = (
    b"root ::= ", b" ::= ", b'"a"', b"[a-z]", b"[^\\n]", b"{2,3}", b"{0,}", b"*", b"+", b"?", b"(", b")", b" | ", b".",
    b"# x\n", b"\\x41", b"\\u00e9", b"\\U0001F600", b"start: ", b"%json {}", b"/a+/", b"(?i)", b"(?:", b"\\p{L}",
    b"{99999999}", b"[]", b"[^]",
)  # fmt: skip
_PYTHON = re.compile(r"[a-z0-9 ()|*+?]*(?:\[[a-z0-9]+\][a-z0-9 ()|*+?]*)*")
_RUST = re.compile(r"[*+?][*+?]|\(\?")
"""Expressions that match the first pattern but not the second have the same meaning in Python and in Rust."""


def seeds() -> Iterable[bytes]:
    for grammar in GRAMMARS.values():
        if len(grammar) < MAX_LEN - 12:
            yield b"\x08\1\2\3\4\5\6\7\x08\0" + grammar.encode()
    yield b'\x08\1\2\3\4\5\6\7\x08\0start: "a" b*\nb: /[0-9]+/\n'
    for regex in ("a+b?", "(ab|c)*[0-9]", "[^a]{2,3}", "a(?i)B", r"\d{3}-\w+"):
        yield b"\x08\1\2\3\4\5\6\7\x08\1" + regex.encode()


def check(data: bytes) -> None:
    draw = Draw(data)
    choices = Draw(draw.bytes(draw.below(64)))
    is_regex = draw.flag()
    text = draw.rest().decode(errors="replace")
    try:
        source = grammar_source(regex=text) if is_regex else grammar_source(grammar=text)
        assert source is not None
        answer = walk(source, choices)
    except RequestError as error:
        check_message(error)
        return
    if answer is not None:
        written = answer.decode()
        if is_regex and _PYTHON.fullmatch(text) and not _RUST.search(text):
            assert re.fullmatch(text, written), (text, written)
    if "::=" in text and chosen(data, 256):
        check_linear(_converted, text[: len(text) // 3], text[len(text) // 3 :])


def _converted(text: str) -> None:
    with suppress(ValueError, RequestError):
        gbnf_to_lark(text)
