"""Grammars in GBNF with everything that the language has, for comparisons with llama.cpp."""

import random
import zlib
from collections.abc import Iterable

GRAMMARS = {
    "literals": 'root ::= "yes" | "no" | "may" "be"',
    "classes": "root ::= [a-z]+ [^a-z\\n] [0-9]{2,3} [é-ü]?",
    "escapes": r'root ::= "tab\tquote\"back\\ \x41\u00e9\U0001F600" [\]\\^"-]+ "\n"',
    "repetition": 'root ::= ("ab" | "c"){3} "-"* "x"+ "y"? ("z"){0,2} "w"{2,}',
    "recursion": 'root ::= "(" root ")" root | ""',
    "left": 'root ::= sum\nsum ::= term (("+" | "-") term)*\nterm ::= [0-9] | "(" sum ")"',
    "list": 'root ::= item+\nitem ::= "- " [^\\r\\n]+ "\\n"   # a comment\n',
    "names": 'root ::= A-rule b2\nA-rule ::= "a" (\n  "b"\n  | "c"\n)\nb2 ::= [xyz]{2}',
    "json": (
        "root ::= object\n"
        'value ::= object | array | string | number | ("true" | "false" | "null") ws\n'
        'object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws\n'
        'array ::= "[" ws (value ("," ws value)*)? "]" ws\n'
        'string ::= "\\"" ([^"\\\\\\x7F\\x00-\\x1F] | "\\\\" (["\\\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\\"" ws\n'
        'number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ws\n'
        'ws ::= | " " | "\\n" [ \\t]{0,20}\n'
    ),
    "numbers": r'root ::= [\x41-\x43\u00e9\x5d]+ [^\x00-\x7f] "\x22"',
    "dot": 'root ::= "<" . . ">"',
    "greetings": 'root ::= greeting ", " name punctuation\ngreeting ::= "Hello" | "Hi"\n'
    "name ::= [A-Z] [a-z]{1,8}\npunctuation ::= [.!?]{1,3}",
}


def summary(tokens: Iterable[int]) -> list[int] | int:
    """A set of tokens, sorted; of many only a checksum, CRC-32."""
    listed = sorted(tokens)
    return listed if len(listed) <= 40 else zlib.crc32(",".join(map(str, listed)).encode())


def is_text(token: bytes) -> bool:
    """Whether a token may be in a text: llama.cpp lets odd ones through, and never the byte 0."""
    return token != b"" and 0 not in token and not any(byte in (0xC0, 0xC1) or byte >= 0xF5 for byte in token)


def random_grammar(rng: random.Random) -> str:
    """Rules of literals, classes, groups and repetitions that name each other, and may name themselves."""
    names = ["root", "one", "two-b", "Three"]

    def element(depth: int) -> str:
        kind = rng.randrange(8 if depth else 6)
        if kind < 2:
            return f'"{"".join(rng.choice(["a", "b", "ab", " ", "-", "é", "{"]) for _ in range(rng.randint(1, 2)))}"'
        if kind < 4:
            return rng.choice(["[a-c]", "[^a-c]", "[é-ü_]", "[-+]", "[ab-]"])
        if kind < 6:
            return f'"<" {rng.choice(names[1:])} ">"'
        return f"({alternatives(depth - 1)})"

    def sequence(depth: int) -> str:
        times = ["", "", "", "*", "+", "?", "{2}", "{1,3}", "{2,}"]
        return " ".join(f"({element(depth)} [0-9]){rng.choice(times)}" for _ in range(rng.randint(1, 3)))

    def alternatives(depth: int) -> str:
        return " | ".join(sequence(depth) for _ in range(rng.randint(2, 3)))

    return "".join(f'{name} ::= "{name[0]}" | {alternatives(2)}\n' for name in names)
