"""Texts in pieces that Pocket TTS was trained for: sentences, together up to some tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from pumice.plugin import RequestError
from pumice.plugin.unstable import SpeechVocabulary

MOST_CHARACTERS = 4096  # of a text
MOST_TOKENS = 50  # of a piece of several sentences
MOST_LETTERS = 100  # of a word, and a third of those of a piece, in texts without marks where they could be divided
_STRAIGHT = str.maketrans(dict.fromkeys("‘’", "'") | {"\n": " ", "\r": " "})
_ENDS, _WEAK, _CLOSERS = ".!?…", ",;:-–—", "\"'”’)]»"


def pieces_of(text: str, vocabulary: SpeechVocabulary) -> Iterator[tuple[str, list[int]]]:
    """Yield each piece of a text with its tokens. Raises RequestError for a text that cannot be spoken."""
    if len(text) > MOST_CHARACTERS:
        raise RequestError(f"speech: the text has {len(text)} characters; at most {MOST_CHARACTERS} are supported")
    if not any(char.isalnum() for char in text):
        raise RequestError("speech: the text has no words")
    for piece in _pieces(prepared(text), vocabulary):
        for part in _bounded(piece):
            ready = prepared(part)
            yield ready, vocabulary.encode(ready)


def prepared(text: str) -> str:
    """Return a text with straight apostrophes, in one line, with a capital letter and a mark at its end."""
    text = " ".join(text.translate(_STRAIGHT).split())
    core = text.rstrip(_CLOSERS + " ")
    closers = text[len(core) :].strip()
    if core and core[-1] in _WEAK:
        text = core.rstrip(_WEAK + " ") + "." + closers
    elif core and core[-1] not in _ENDS:
        text += "."
    return text[:1].upper() + text[1:]


def _pieces(text: str, vocabulary: SpeechVocabulary) -> list[str]:
    """Return the sentences of a text, together up to ``MOST_TOKENS``; longer ones in clauses."""
    ends, clauses = set(vocabulary.encode(".!...?")[1:]), set(vocabulary.encode(",;:")[1:])
    segments: list[tuple[int, str]] = []
    for sentence in _divided(vocabulary.encode(text), ends, vocabulary):
        spelt = vocabulary.decode(sentence).strip()
        inner = vocabulary.encode(spelt) if len(sentence) > MOST_TOKENS else []
        parts = list(_divided(inner, clauses, None)) if inner else []
        segments += (
            [(len(part), vocabulary.decode(part).strip()) for part in parts]
            if len(parts) > 1
            else [(len(sentence), spelt)]
        )
    pieces: list[str] = []
    room = 0
    for n, segment in segments:
        if pieces and n <= room:
            pieces[-1] += f" {segment}"
            room -= n
        elif segment:
            pieces.append(segment)
            room = MOST_TOKENS - n
    return pieces


def _divided(tokens: list[int], marks: Set[int], vocabulary: SpeechVocabulary | None) -> Iterator[list[int]]:
    """Yield tokens up to each run of marks; with a vocabulary, not within a number such as 3.14."""
    start, was_mark = 0, False
    for i, token in enumerate(tokens):
        if token not in marks and was_mark and not (vocabulary and _is_in_number(tokens, i, vocabulary)):
            yield tokens[start:i]
            start = i
        was_mark = token in marks
    yield tokens[start:]


def _is_in_number(tokens: list[int], i: int, vocabulary: SpeechVocabulary) -> bool:
    before, after = vocabulary.decode(tokens[max(0, i - 4) : i]), vocabulary.decode(tokens[i : i + 2])
    return bool(re.search(r"\d\.$", before)) and after.strip()[:1].isdigit()


def _bounded(piece: str) -> Iterator[str]:
    """Yield a piece in parts that the model can end, if it has no marks for long."""
    words = [word[i : i + MOST_LETTERS] for word in piece.split() for i in range(0, len(word), MOST_LETTERS)]
    part = ""
    for word in words:
        if len(part) + len(word) > MOST_LETTERS * 3 and any(char.isalnum() for char in part):
            yield part
            part = ""
        part = f"{part} {word}" if part else word
    if any(char.isalnum() for char in part):
        yield part
