"""Corruptions of a story that a checker must detect."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from random import Random

from . import lexicon

_NAMES = re.compile(rf"\b(?:{'|'.join(name.text for name in lexicon.NAMES)})\b")
_PLACES = re.compile(rf"(?<=the )(?:{'|'.join(place.text for place in lexicon.PLACES)})\b")
_THINGS = re.compile(rf"\b(?:{'|'.join(sorted({thing.noun for thing in lexicon.THINGS}))})\b")
_PRONOUNS = {"he": "she", "she": "he", "He": "She", "She": "He"}


_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[.!?]\")\s+")


def sentences(text: str) -> list[str]:
    """Split a story into sentences; direct speech may be split, too."""
    return _SENTENCE_END.split(text)


def _reorder(text: str, order: list[int]) -> str:
    """Reorder the sentences, keeping spaces and paragraph breaks in place."""
    parts = sentences(text)
    gaps = iter(_SENTENCE_END.findall(text))
    return "".join(parts[i] + next(gaps, "") for i in order)


def shuffle_sentences(text: str, random: Random) -> str:
    order = list(range(len(sentences(text))))
    random.shuffle(order)
    return _reorder(text, order)


def swap_two_sentences(text: str, random: Random) -> str:
    order = list(range(len(sentences(text))))
    i = random.randrange(len(order) - 1)
    order[i], order[i + 1] = order[i + 1], order[i]
    return _reorder(text, order)


def drop_beginning(text: str, random: Random) -> str:
    del random
    return text.removeprefix(sentences(text)[0]).strip()


def cut_off(text: str, random: Random) -> str:
    """Cut the story after a sentence before the last."""
    parts = sentences(text)
    last = parts[random.randrange(len(parts) - 1)]
    return text[: text.index(last) + len(last)]


def _replace_one(pattern: re.Pattern[str], text: str, random: Random, among: list[str] | None = None) -> str:
    """Replace one occurrence, but not the first, by another word that the pattern matches."""
    matches = list(pattern.finditer(text))
    old = random.choice(matches[1:])
    others = sorted({match.group() for match in matches} | set(among or ()))
    return text[: old.start()] + random.choice([new for new in others if new != old.group()]) + text[old.end() :]


def rename_once(text: str, random: Random) -> str:
    """Replace a character's name in one sentence by the other's or a new one."""
    return _replace_one(_NAMES, text, random, ["Mia", "Tom", "Zoe"])


def teleport(text: str, random: Random) -> str:
    """Replace the place in one sentence."""
    if len(_PLACES.findall(text)) < 2:
        return rename_once(text, random)
    return _replace_one(_PLACES, text, random, ["pond", "market", "hill"])


def change_thing(text: str, random: Random) -> str:
    """Replace the thing in one sentence."""
    if len(_THINGS.findall(text)) < 2:
        return rename_once(text, random)
    return _replace_one(_THINGS, text, random, ["drum", "scarf", "kite"])


def change_pronoun(text: str, random: Random) -> str:
    """Exchange he and she in one sentence."""
    matches = list(re.finditer(r"\b(?:[Hh]e|[Ss]he)\b", text))
    if not matches:
        return rename_once(text, random)
    old = random.choice(matches)
    return text[: old.start()] + _PRONOUNS[old.group()] + text[old.end() :]


CORRUPTIONS: Mapping[str, Callable[[str, Random], str]] = {
    "sentences shuffled": shuffle_sentences,
    "two sentences swapped": swap_two_sentences,
    "beginning missing": drop_beginning,
    "cut off": cut_off,
    "another name once": rename_once,
    "another place once": teleport,
    "another thing once": change_thing,
    "another pronoun once": change_pronoun,
}
