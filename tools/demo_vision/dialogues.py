"""The tokenizer, and rows of tokens to train on: chats about pictures, and texts that begin with a picture."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from .scenes import Scene, scenes
from .sentences import ASKING, NO_PICTURE, OPENINGS, WORDS, ask, contents, description

END, USER, ASSISTANT = "<|end|>", "<|user|>", "<|assistant|>"
IMAGE, AROUND, WHOLE = "<image>", "<fake_token_around_image>", "<global-img>"
SPECIAL = (END, USER, ASSISTANT, IMAGE, AROUND, WHOLE)
END_ID, IMAGE_ID = SPECIAL.index(END), SPECIAL.index(IMAGE)
LEARNED = 1 << 12
"""Added to the tokens of a row that are to be predicted."""

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|assistant|>' if message.role == 'assistant' else '<|user|>' -}}
{%- if message.content is string -%}
{{- message.content -}}
{%- else -%}
{%- for part in message.content if part.type == 'image' -%}{{- '<image>' -}}{%- endfor -%}
{%- for part in message.content if part.type == 'text' -%}{{- part.text -}}{%- endfor -%}
{%- endif -%}
{{- '<|end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}
"""


def train_tokenizer(seed: int, vocab_size: int, count: int = 20_000) -> Tokenizer:
    """Return byte-level BPE trained on questions and answers about ``count`` scenes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(seed, count), trainer)
    return tokenizer


def _texts(seed: int, count: int) -> Iterable[str]:
    random = Random(seed)
    for scene in itertools.islice(scenes(seed, -1), count):
        question, answer = ask(scene, random)
        yield from (question, answer, description(scene))
    yield from (*ASKING, *OPENINGS, NO_PICTURE, " ".join(WORDS))


@dataclass
class Row:
    """Tokens of a text, those to predict plus LEARNED, and the pictures in it, by number."""

    tokens: list[int] = field(default_factory=list)
    pictures: list[int] = field(default_factory=list)


class Writer:
    """Writes rows of at most ``length`` tokens; a picture takes ``n_rows`` of them, and three around."""

    def __init__(self, tokenizer: Tokenizer, length: int, n_rows: int) -> None:
        self._tokenizer = tokenizer
        self._length = length
        self._ids = {text: id for id, text in enumerate(SPECIAL)}
        self._picture = [self._ids[AROUND], self._ids[WHOLE], *[IMAGE_ID] * n_rows, self._ids[AROUND]]
        self._known: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        ids = self._known.get(text)
        if ids is None:
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
            if len(self._known) < 100_000:
                self._known[text] = ids
        return ids

    def chat_start(self, question: str, has_picture: bool = True) -> list[int]:
        """Return the tokens of a chat up to its first answer."""
        ids = [self._ids[USER], *(self._picture if has_picture else []), *self.encode(question)]
        return [*ids, END_ID, self._ids[ASSISTANT]]

    def text_start(self, text: str = "") -> list[int]:
        """Return the tokens of a picture and a text that follows it."""
        return [*self._picture, *self.encode(text)]

    def rows(self, pair: tuple[Scene, Scene], random: Random) -> tuple[Row, Row]:
        """Return two rows about two pictures, each of which the rows use as often as the other."""
        if random.random() < 0.3:
            return self._chat(pair, (0, 1), random), self._chat(pair, (1, 0), random)
        return self._about(pair, 0, random), self._about(pair, 1, random)

    def _about(self, pair: tuple[Scene, Scene], number: int, random: Random) -> Row:
        if (kind := random.random()) < 0.7:
            return self._chat(pair, (number,), random)
        if kind < 0.75:
            question, _ = ask(pair[number], random)
            begin = self.chat_start(question, False) if random.random() < 0.7 else self.encode(question or "?")
            return Row([*begin, *self._learned(NO_PICTURE)])
        before, after = self._continued(pair[number], random)
        return Row([*self.text_start(before), *self._learned(after)], [number])

    def _continued(self, scene: Scene, random: Random) -> tuple[str, str]:
        """Return a text that follows a picture, and how it goes on."""
        if (kind := random.random()) < 0.4:
            return "", description(scene)
        if kind < 0.65:
            return random.choice(OPENINGS), f" {contents(scene)}."
        if kind < 0.8:
            words = description(scene).split(" ")
            n = random.randint(1, len(words) - 1)
            return " ".join(words[:n]), " " + " ".join(words[n:])
        question, answer = ask(scene, random)
        return question, f" {answer}" if question else answer

    def _chat(self, pair: tuple[Scene, Scene], numbers: tuple[int, ...], random: Random) -> Row:
        """Return a chat with questions about each picture, the first of which comes with it."""
        row = Row()
        for number in numbers:
            for i in range(random.choice((1, 1, 2, 3))):
                question, answer = ask(pair[number], random)
                turn = [*self.chat_start(question, i == 0), *self._learned(answer)]
                if len(row.tokens) + len(turn) > self._length:
                    return row
                row.tokens += turn
                row.pictures += [number] if i == 0 else []
        return row

    def _learned(self, text: str) -> list[int]:
        return [LEARNED | id for id in (*self.encode(text), END_ID)]
