"""Patterns of JSON schemas have the meaning of ECMA-262: compared with Node.js."""

import json
import random
import shutil
import subprocess
import time

import pytest

from pumice.grammar.ecma import to_rust
from schema_texts import allows_values

ATOMS = [
    *("a", "b", "-", "&", ".", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", "[ab]", "[^a]", "[a&&b]", "[a--b]", "[~~]"),
    *(r"[\w-.]", r"[a-\d]", "[[a]", r"\u0041", r"\x41", r"\/", r"\-", "{", "}", "]", "[^]", r"\cA", r"\t", "é"),
    *("[+--]", r"[\b]", r"\0", r"[\s\S]", r"[\]\[]", "[&&]", r"[^\d&&]", "a{,2}", "{a}", r"[^\W\d]", r"[\u00e0-\xff]"),
]
ASSERTIONS = [r"\b", r"\B", "(?=a)", "(?!b)", "(?<=a)", "(?<!a)", "(?!^a(b)[)])"]
CHARACTERS = "ab0-&.Aé\n\r\u2028 \u00a0\u0085\ufeff{}][/~\x01\t+,_\x08\x00"


def random_pattern(rng: random.Random, depth: int, atoms: list[str]) -> str:
    def inner() -> str:
        return random_pattern(rng, depth - 1, atoms)

    forms = [
        lambda: rng.choice(atoms),
        lambda: rng.choice(atoms),
        lambda: inner() + inner(),
        lambda: f"({inner()}|{inner()})",
        lambda: f"(?:{inner()}){rng.choice(['*', '+', '?', '{2}', '{0,1}', '{1,}', '*?'])}",
        lambda: f"{inner()}|{inner()}",
    ]
    return rng.choice(forms if depth else forms[:1])()


def in_node(patterns: dict[str, list[str]]) -> dict[str, list[bool]]:
    """Return for each valid pattern which texts it matches, in Unicode mode if it is valid there."""
    script = """const given = JSON.parse(require('fs').readFileSync(0)), answer = {};
        for (const [pattern, texts] of Object.entries(given)) {
            let regex;
            try { regex = new RegExp(pattern); } catch { continue; }
            try { regex = new RegExp(pattern, 'u'); } catch {}
            answer[pattern] = texts.map(text => regex.test(text));
        }
        console.log(JSON.stringify(answer));"""
    done = subprocess.run(
        ["node", "-e", script], input=json.dumps(patterns), capture_output=True, text=True, check=True
    )
    answer: dict[str, list[bool]] = json.loads(done.stdout)
    return answer


@pytest.mark.skipif(not shutil.which("node"), reason="needs Node.js")
@pytest.mark.parametrize("asserts", [False, True])
def test_random_patterns_match_what_node_matches(asserts):
    rng = random.Random(asserts)
    atoms = ATOMS + ASSERTIONS * 3 * asserts
    texts = {
        rng.choice(["", "", "^"]) + random_pattern(rng, 3, atoms) + rng.choice(["", "", "$"]): [
            "".join(rng.choices(CHARACTERS, k=rng.randint(0, 3))) for _ in range(20)
        ]
        for _ in range(150)
    }
    n_compared = 0
    for pattern, matches in in_node(texts).items():
        allowed = allows_values({"type": "string", "pattern": pattern}, *texts[pattern])
        if asserts:  # weaker: whatever matches is allowed
            assert all(allow or not match for allow, match in zip(allowed, matches, strict=True)), pattern
        else:
            assert allowed == matches, pattern
        n_compared += 1
    assert n_compared > 100


@pytest.mark.parametrize(
    ("pattern", "fitting", "other"),
    [
        (r"^[a&&b]$", ["a", "&", "b"], ["ab", "c"]),
        (r"^[\w--_]$", ["_", "-", "x"], ["+"]),
        (r"^[+--]$", ["+", ",", "-"], ["."]),
        (r"^[[a-c]$", ["[", "a"], ["]"]),
        (r"^[~~]$", ["~"], ["a"]),
        (r"^\w\d\s$", ["a1 ", "_0\u00a0"], ["é1 ", "a٣ ", "a1\u0085"]),
        (r"^.$", ["a", "é"], ["\n", "\r", "\u2028", ""]),
        (r"^{[a-z]+}$", ["{ab}"], ["ab"]),
        (r"^\uD83D\uDE00$", ["😀"], ["x"]),
        (r"^\u{1F600}[\u{1F600}-\u{1F610}]$", ["😀😁"], ["😀"]),
        (r"^(?<year>\d{4})-(?P<month>\d\d)$", ["2026-11"], ["26-11"]),
        (r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", ["-1.5", "007"], ["1e5"]),  # pydantic's, of Decimal
        (r"^(?=.*[A-Z])(?=.*\d).{8,}$", ["Password1"], ["Pass1"]),  # of passwords
        (r"^(\d+(,|$))+$", ["1,23", "1"], ["x"]),
        (r"\bcat\b", ["a cat"], ["dog"]),
        (r"^(['\"]).*\1$", ["'a'"], ["a"]),
        (r"\Aab\Z", ["ab"], ["abc", "aab"]),
    ],
)
def test_patterns_that_generators_and_people_write(pattern, fitting, other):
    allowed = allows_values({"type": "string", "pattern": pattern}, *fitting, *other)
    assert allowed == [True] * len(fitting) + [False] * len(other)


@pytest.mark.parametrize("pattern", ["(a", "a)", "[a", "*a", "(?=a", "[b-a]", "a{2,1}"])
def test_invalid_patterns_are_refused(pattern):
    with pytest.raises(ValueError):
        allows_values({"type": "string", "pattern": pattern}, "a")


@pytest.mark.parametrize(
    "part", ["[", "^", "$", "(?=", "(?!a)", "\\p{", "(?<a", "\\b*", "[\\", "{", "^a|", "[^", "\\k<a"]
)
def test_translating_takes_linear_time(part):
    started = time.process_time()
    to_rust(part * (8192 // len(part)))
    assert time.process_time() - started < 2
