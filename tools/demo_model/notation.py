"""The notation of plots and sentence patterns in patterns/*.txt:

    plot lost: opening trait? / treasure travel scene:here find ending

    [treasure] take hero thing
    {He} had {thing:a}, and {he} [loved|liked] it very much.

A plot is a list of steps. `name?` is optional, `one|other` is a choice, `/` begins a paragraph, and `scene:here` is the
beat called `scene pond` if the hero is at the pond. A beat is a headed list of patterns, one per line, with the events
that happen in it (see world.py). In a pattern, `{fact:form}` writes a fact, drawn at its first mention; `{he}`,
`{his}`, ... refer to the hero; `[a|b]` is a choice of wordings, which may have slots; `<list>` is any word of that list
in lexicon.WORDS.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from .grammar import Beat, Choice, Grammar, Part, Parts, Slot, Step
from .lexicon import PRONOUNS, WORDS
from .world import VALUES

FOLDER = Path(__file__).parent / "patterns"

_TOKEN = re.compile(r"\{(\w+)(?::(\w+))?\}|<(\w+)>|([\[\]|])|([^\[\]|{}<>]+)")


@cache
def load() -> Grammar:
    """Return the grammar in patterns/*.txt."""
    files = sorted(FOLDER.glob("*.txt"))
    grammar = parse_grammar("\n\n".join(path.read_text(encoding="utf-8") for path in files))
    _check(grammar)
    return grammar


def parse_grammar(text: str) -> Grammar:
    plots: dict[str, list[Step]] = {}
    beats: dict[str, Beat] = {}
    lines = iter(line.strip() for line in text.splitlines())
    for line in lines:
        if line.startswith("plot "):
            name, _, script = line.removeprefix("plot ").partition(":")
            plots[name] = _parse_script(script)
        elif line.startswith("["):
            name, _, events = line[1:].partition("]")
            patterns = tuple(parse_pattern(pattern) for pattern in iter(lambda: next(lines, ""), ""))
            if name in beats or not patterns:
                raise ValueError(f"beat {name} is " + ("there twice" if name in beats else "empty"))
            beats[name] = Beat(name, tuple(tuple(event.split()) for event in events.split(";") if event), patterns)
        elif line and not line.startswith("#"):
            raise ValueError(f"expected a plot, a beat or a comment: {line}")
    return Grammar(plots, beats)


def _parse_script(script: str) -> list[Step]:
    steps: list[Step] = []
    separator = ""
    for word in script.split():
        if word == "/":
            separator = "\n\n"
            continue
        steps.append(Step(tuple(word.rstrip("?").split("|")), word.endswith("?"), separator))
        separator = " "
    return steps


def parse_pattern(line: str) -> Parts:
    """Return the parts of a pattern line."""
    tokens = list(_TOKEN.finditer(line))
    if "".join(token.group() for token in tokens) != line:
        raise ValueError(f"stray bracket in pattern: {line}")
    parts, rest = _parse_parts(tokens, 0)
    if rest != len(tokens):
        raise ValueError(f"unbalanced brackets in pattern: {line}")
    return parts


def _parse_parts(tokens: list[re.Match[str]], i: int) -> tuple[Parts, int]:
    """Parse parts from token `i` to the end of the line, option or choice; return them and the end."""
    parts: list[Part] = []
    while i < len(tokens) and tokens[i].group() not in ("|", "]"):
        slot, form, words, bracket, literal = tokens[i].groups()
        i += 1
        if bracket:
            options: list[Parts] = []
            while not options or tokens[i - 1].group() == "|":
                option, i = _parse_parts(tokens, i)
                options.append(option)
                i += 1  # past the | or the ]
                if i > len(tokens):
                    raise ValueError("unclosed bracket in pattern")
            parts.append(Choice(tuple(options)))
        elif words:
            parts.append(Choice(tuple((word,) for word in WORDS[words])))
        elif slot:
            parts.append(Slot("hero", slot) if slot.lower() in PRONOUNS else Slot(slot, form or ""))
        else:
            parts.append(literal)
    return tuple(parts), i


def _check(grammar: Grammar) -> None:
    """Check that every beat of a plot exists and every beat is used."""
    used: set[str] = set()
    for steps in grammar.plots.values():
        for beat in (beat for step in steps for beat in step.beats):
            family, _, fact = beat.partition(":")
            values = VALUES["place" if fact == "here" else fact] if fact else ()
            used.update([f"{family} {value.text}" for value in values] or [family])
    if used != set(grammar.beats):
        raise ValueError(f"undefined or unused beats: {used ^ set(grammar.beats)}")
