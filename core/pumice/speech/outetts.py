"""Prompts of OuteTTS 0.2 and 0.3 (OuteAI): words for a language model that continues them with audio codes."""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pumice.errors import RequestError
from pumice.speech.number_words import number_words
from pumice.speech.voice import SpokenWord, Voice

MOST_CHARACTERS = 4096  # of a text
MOST_WORDS = 30  # of a piece, which is spoken at once

_START, _END = "<|im_start|>\n<|text_start|>", "<|text_end|>\n"
_AUDIO = "<|audio_start|>\n"
_ENDS = ("<|audio_end|>", "<|im_end|>")
_CODE = re.compile(r"<\|(\d{1,4})\|>")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_SENTENCE_END = re.compile(r"(?<=[.!?;:。！？…])\s+|\n+")
_PUNCTUATION = {
    ".": "<|period|>", "!": "<|exclamation_mark|>", "?": "<|question_mark|>", ",": "<|comma|>", '"': "<|double_quote|>"
}  # fmt: skip
_MARKS = re.escape("".join(_PUNCTUATION))
_MARKED_WORD = re.compile(rf"([{_MARKS}]*)([a-z]+)([{_MARKS}]*)")
_FOLDED = str.maketrans({
    "ß": "ss", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "đ": "d", "Đ": "D", "ł": "l", "Ł": "L",
    "þ": "th", "Þ": "Th", "ð": "d", "Ð": "D", "ı": "i", "…": "...", "¡": "!", "¿": "?",
    **dict.fromkeys("“”„«»", '"'), **dict.fromkeys("‘’‚′", "'"), **dict.fromkeys("—–‒―‐‑−", "-"),
})  # fmt: skip


class OuteTTS(ABC):
    """The prompts of a model, and the audio codes among its tokens.

    Attributes:
        codes: audio codes by token id.
        ends: token ids that end a speech.
    """

    name: ClassVar[str]

    def __init__(self, tokens: Sequence[str]) -> None:
        """Find the codes in a vocabulary, which takes a while: not on an event loop."""
        matches = ((id, _CODE.fullmatch(token)) for id, token in enumerate(tokens) if token.startswith("<|"))
        self.codes: Mapping[int, int] = {id: int(match[1]) for id, match in matches if match}
        self.ends = [tokens.index(end) for end in _ENDS if end in tokens]

    @classmethod
    def of(cls, tokens: Sequence[str]) -> OuteTTS | None:
        """Return the version whose tokens a vocabulary has; None if the model does not speak."""
        special = {token for token in tokens if token.startswith("<|")}
        if not special.issuperset(("<|text_start|>", "<|text_end|>", "<|audio_start|>", "<|0|>", *_ENDS)):
            return None
        return (
            OuteTTS03(tokens) if "<|space|>" in special else OuteTTS02(tokens) if "<|code_start|>" in special else None
        )

    def pieces(self, text: str) -> list[str]:
        """Return the parts of a text that are spoken one after the other: sentences, up to ``MOST_WORDS`` together.

        Raises RequestError for a text that is too long, in other letters than Latin ones, or without any.
        """
        if len(text) > MOST_CHARACTERS:
            raise RequestError(f"speech: the text has {len(text)} characters; at most {MOST_CHARACTERS} are supported")
        text = _latin(text)
        pieces: list[list[str]] = [[]]
        for sentence in _SENTENCE_END.split(text):
            words = sentence.split()
            if pieces[-1] and len(pieces[-1]) + len(words) > MOST_WORDS:
                pieces.append([])
            pieces[-1] += words
            while len(pieces[-1]) > MOST_WORDS:
                pieces[-1:] = [pieces[-1][:MOST_WORDS], pieces[-1][MOST_WORDS:]]
        spoken = [piece for piece in map(" ".join, pieces) if self.words(piece)]
        if not spoken:
            raise RequestError("speech: the text has no words")
        return spoken

    @abstractmethod
    def prompt(self, piece: str, voice: Voice | None) -> str:
        """Return the prompt of a piece of a text. Raises RequestError for a voice with other letters than a to z."""

    @abstractmethod
    def words(self, text: str) -> list[str]:
        """Return the words of a text, as the prompt has them."""


class OuteTTS02(OuteTTS):
    """Version 0.2: letters alone, and a pair of tokens around the codes of each word."""

    name = "OuteTTS 0.2"

    def prompt(self, piece: str, voice: Voice | None) -> str:
        words = [*(map(_plain, voice.words) if voice else []), *self.words(piece)]
        spoken = "\n".join(map(self._spoken, voice.words)) if voice else ""
        return f"{_START}{'<|text_sep|>'.join(words)}{_END}{_AUDIO}{spoken}"

    def words(self, text: str) -> list[str]:
        text = re.sub(r"[-_/,.\\]", " ", _read_numbers(_latin(text).lower()))
        return re.sub(r"[^a-z\s]", "", text).split()

    def _spoken(self, word: SpokenWord) -> str:
        return f"{_plain(word)}{_duration(word)}<|code_start|>{_codes(word)}<|code_end|>"


class OuteTTS03(OuteTTS):
    """Version 0.3: punctuation as tokens, and a token between words."""

    name = "OuteTTS 0.3"
    _SPACE = "<|space|>"

    def prompt(self, piece: str, voice: Voice | None) -> str:
        said = self._said(voice) if voice else []
        text = self._SPACE.join([*said, *self.words(piece)])
        words = zip(said, voice.words if voice else [], strict=True)
        spoken = "".join(f"{marked}{_duration(word)}{_codes(word)}{self._SPACE}\n" for marked, word in words)
        return f"{_START}{text}{_END}{_AUDIO}{spoken}"

    def words(self, text: str) -> list[str]:
        return [before + word + after for before, word, after in self._marked(text)]

    def _marked(self, text: str) -> list[tuple[str, str, str]]:
        """Return each word with the tokens of the punctuation before and after it."""
        text = re.sub(r"['`]", "", _latin(text)).replace("-", " ").lower()
        text = re.sub(rf"[^a-z{_MARKS}]", " ", _read_numbers(text).replace("-", ""))
        text = re.sub(rf" ([{_MARKS}]+)(?= |$)", r"\1", " ".join(text.split()))  # "word ." is "word."
        return [
            (_tokens(before), word, _tokens(after))
            for token in text.split()
            for before, word, after in _MARKED_WORD.findall(token)
        ]

    def _said(self, voice: Voice) -> list[str]:
        """Return the words of a voice, with their punctuation unless its text has other words or letters."""
        plain = list(map(_plain, voice.words))
        try:
            marked = self._marked(voice.text)
        except RequestError:
            return plain
        is_same = [word for _, word, _ in marked] == plain
        return [before + word + after for before, word, after in marked] if is_same else plain


def _latin(text: str) -> str:
    """Return a text with letters without accents. Raises RequestError for other letters than Latin ones."""
    text = unicodedata.normalize("NFKD", text.translate(_FOLDED))
    text = "".join(" " if char.isspace() else char for char in text if not unicodedata.combining(char))
    other = next((char for char in text if not char.isascii() and unicodedata.category(char)[0] in "LN"), None)
    if other is not None:
        raise RequestError(f"speech: the text has {other!r}; OuteTTS reads texts in Latin letters here")
    return "".join(char if char.isascii() else " " for char in text)


def _read_numbers(text: str) -> str:
    return _NUMBER.sub(lambda match: number_words(match[0]), _THOUSANDS.sub("", text))


def _tokens(marks: str) -> str:
    return "".join(_PUNCTUATION[mark] for mark in marks)


def _plain(word: SpokenWord) -> str:
    """Return a voice's word. Raises RequestError for one of other characters, which might spell tokens."""
    if not re.fullmatch("[a-z]+", word.word):
        raise RequestError(f"voice: a word is {word.word!r}; words have letters from a to z alone")
    return word.word


def _duration(word: SpokenWord) -> str:
    return f"<|t_{word.duration:.2f}|>"


def _codes(word: SpokenWord) -> str:
    return "".join(f"<|{code}|>" for code in word.codes)
