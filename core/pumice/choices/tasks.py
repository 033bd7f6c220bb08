"""Files of tasks as llama-perplexity reads them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pumice.errors import RequestError
from pumice.sampler.random import LlamaGenerator

N_ENDINGS = 4  # of a task of HellaSwag
MOST_ANSWERS = 100  # of a multiple choice
BLANK = "_"  # the word that is wanted in a sentence of Winogrande


@dataclass(frozen=True)
class Task:
    """Texts of which the most probable one should be a right one.

    Attributes:
        right: the numbers of the texts that are.
        given: of each text a beginning that does not count, where that is more than what all of them share.
    """

    texts: Sequence[str]
    right: frozenset[int]
    given: Sequence[str] = ()


def read_tasks(data: bytes, kind: str, most: int = 0) -> list[Task]:
    """The tasks of a file; ``most``: how many, drawn at random but always the same, as llama.cpp draws; 0: all.

    Raises RequestError, with line or place, for a file that is none of this kind.
    """
    tasks = _READERS[kind](data)
    if not tasks:
        raise RequestError("has no tasks")
    return _DRAWS[kind](tasks, most) if 0 < most < len(tasks) else tasks


def _hellaswag(data: bytes) -> list[Task]:
    """Six lines a task: activity and context, the number of the right ending from 0, the four endings."""
    lines = _lines(data)
    size = 2 + N_ENDINGS
    if len(lines) % size:
        raise RequestError(f"has {len(lines)} lines, {size} make a task of HellaSwag")
    return [_hellaswag_task(lines[i : i + size], i + 1) for i in range(0, len(lines), size)]


def _hellaswag_task(lines: Sequence[str], number: int) -> Task:
    context, right, *endings = lines
    if right.strip() not in map(str, range(N_ENDINGS)):
        raise RequestError(f"line {number + 1}: {right!r} is not the number of an ending, 0 to {N_ENDINGS - 1}")
    return Task([f"{context} {ending}" for ending in endings], frozenset({int(right)}))


def _winogrande(data: bytes) -> list[Task]:
    """A line a task: number, sentence with a blank, two words for it, which of them is right from 1."""
    return [_winogrande_task(line, number) for number, line in enumerate(_lines(data), 1) if line]


def _winogrande_task(line: str, number: int) -> Task:
    fields = _fields(line)
    if len(fields) != 5:
        raise RequestError(f"line {number}: has {len(fields)} fields, not number, sentence, two words and the answer")
    _, sentence, *words, answer = fields
    if sentence.startswith('"'):
        sentence = sentence[1:-1]
    first, blank, second = sentence.partition(BLANK)
    if not blank:
        raise RequestError(f"line {number}: the sentence has no {BLANK} for the word")
    if answer.strip() not in ("1", "2"):
        raise RequestError(f"line {number}: the answer is {answer!r}, not 1 or 2")
    texts = [first + word + second for word in words]
    return Task(texts, frozenset({int(answer) - 1}), [first + word for word in words])


def _fields(line: str) -> list[str]:
    """The first four commas outside quotation marks part a line; marks stay."""
    fields: list[str] = []
    quoted, start = False, 0
    for i, character in enumerate(line):
        if character == '"':
            quoted = not quoted
        elif character == "," and not quoted and len(fields) < 4:
            fields.append(line[start:i])
            start = i + 1
    return [*fields, line[start:]]


def _multiple_choice(data: bytes) -> list[Task]:
    """Little-endian numbers of 32 bits: how many tasks, where each is, and the tasks."""
    reader = _Reader(data)
    count = reader.number()
    places = [reader.number() for _ in range(count)] if 4 * count <= len(data) else []
    if not places:
        raise RequestError("is no file of multiple choices")
    return [_Reader(data, place).task() for place in places]


class _Reader:
    """Reads what multiple choices are made of."""

    def __init__(self, data: bytes, place: int = 0) -> None:
        self._data = data
        self._place = place

    def task(self) -> Task:
        """A question, answers of which one is right, and answers of which several are, which do not count."""
        question = self.text()
        answers = [self.text() for _ in range(self.count())]
        labels = [self.number() for _ in answers]
        if not question or not answers or not all(answers):
            raise RequestError(f"the task at byte {self._place} has an empty question or answer")
        right = frozenset(i for i, label in enumerate(labels) if label == 1)
        return Task([f"{question} {answer}" for answer in answers], right)

    def count(self) -> int:
        count = self.number()
        if count > MOST_ANSWERS:
            raise RequestError(f"byte {self._place}: {count} answers are more than {MOST_ANSWERS}")
        return count

    def text(self) -> str:
        size = self.number()
        text = self._take(size)
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError:
            raise RequestError(f"the text at byte {self._place - size} is not UTF-8") from None

    def number(self) -> int:
        (value,) = struct.unpack("<I", self._take(4))
        return int(value)

    def _take(self, size: int) -> bytes:
        end = self._place + size
        if end > len(self._data):
            raise RequestError(f"ends at byte {len(self._data)}, in the middle of a task")
        taken, self._place = self._data[self._place : end], end
        return taken


def _lines(data: bytes) -> list[str]:
    try:
        return data.decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise RequestError(f"is not UTF-8: byte {error.start}") from None


def _draw_hellaswag(tasks: list[Task], n: int) -> list[Task]:
    """By ``std::uniform_int_distribution``, as libstdc++ has it (Lemire 2019, arXiv:1805.10941)."""
    words, left, drawn = LlamaGenerator(1).bit_generator, list(tasks), list[Task]()
    for _ in range(n):
        product = int(words.random_raw()) * len(left)
        while product % 2**32 < 2**32 % len(left):
            product = int(words.random_raw()) * len(left)
        drawn.append(left.pop(product >> 32))
    return drawn


def _draw(tasks: list[Task], n: int) -> list[Task]:
    """By a float32 from [0, 1) each; the last one takes the place of the one that is drawn."""
    numbers, left, drawn = LlamaGenerator(1).random(n, np.float32), list(tasks), list[Task]()
    for number in numbers:
        i = int(number * np.float32(len(left)))
        drawn.append(left[i])
        left[i] = left[-1]
        left.pop()
    return drawn


_READERS: dict[str, Callable[[bytes], list[Task]]] = {
    "hellaswag": _hellaswag,
    "winogrande": _winogrande,
    "multiple-choice": _multiple_choice,
}
_DRAWS = {"hellaswag": _draw_hellaswag, "winogrande": _draw, "multiple-choice": _draw}

KINDS = tuple(_READERS)
