"""Read files of tasks in llama-perplexity's formats."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pumice.errors import RequestError
from pumice.sampler.random import LlamaGenerator
from pumice.wording import counted_as

N_ENDINGS = 4  # endings per HellaSwag task
MOST_ANSWERS = 100  # maximum answers per multiple-choice task
BLANK = "_"  # the blank in a Winogrande sentence


@dataclass(frozen=True)
class Task:
    """Alternative texts; the model should find a correct one the most probable.

    Attributes:
        texts: the alternatives.
        right: indices of the correct texts.
        beginnings: beginnings of the texts that are not scored, if they exceed the common prefix.
    """

    texts: Sequence[str]
    right: frozenset[int]
    beginnings: Sequence[str] = ()


def read_tasks(data: bytes, kind: str, most: int = 0) -> list[Task]:
    """Return the tasks of a file.

    Args:
        data: content of the file.
        kind: one of ``KINDS``.
        most: maximum number of tasks, selected like llama.cpp's fixed random selection; 0: unlimited.

    Raises:
        RequestError: invalid file; the message names the line or the offset.
    """
    tasks = _READERS[kind](data)
    if not tasks:
        raise RequestError("has no tasks")
    return _DRAWS[kind](tasks, most) if 0 < most < len(tasks) else tasks


def _hellaswag(data: bytes) -> list[Task]:
    """Parse six lines per task: activity and context, the index of the correct ending, the four endings."""
    lines = _lines(data)
    size = 2 + N_ENDINGS
    if len(lines) % size:
        raise RequestError(f"has {counted_as(len(lines), 'line')}, but a HellaSwag task has {size}")
    return [_hellaswag_task(lines[i : i + size], i + 1) for i in range(0, len(lines), size)]


def _hellaswag_task(lines: Sequence[str], number: int) -> Task:
    context, right, *endings = lines
    if right.strip() not in map(str, range(N_ENDINGS)):
        raise RequestError(f"line {number + 1}: {right!r} is not the index of an ending, 0 to {N_ENDINGS - 1}")
    return Task([f"{context} {ending}" for ending in endings], frozenset({int(right)}))


def _winogrande(data: bytes) -> list[Task]:
    """Parse one line per task: number, sentence with a blank, two words for it, and the correct one, 1 or 2."""
    return [_winogrande_task(line, number) for number, line in enumerate(_lines(data), 1) if line]


def _winogrande_task(line: str, number: int) -> Task:
    fields = _fields(line)
    if len(fields) != 5:
        raise RequestError(
            f"line {number}: has {counted_as(len(fields), 'field')}, expected number, sentence, two words, answer"
        )
    _, sentence, *words, answer = fields
    if sentence.startswith('"'):
        sentence = sentence[1:-1]
    first, blank, second = sentence.partition(BLANK)
    if not blank:
        raise RequestError(f"line {number}: the sentence has no blank ({BLANK})")
    if answer.strip() not in ("1", "2"):
        raise RequestError(f"line {number}: the answer is {answer!r}, expected 1 or 2")
    texts = [first + word + second for word in words]
    return Task(texts, frozenset({int(answer) - 1}), [first + word for word in words])


def _fields(line: str) -> list[str]:
    """Split a line at the first four commas outside of quotation marks, which are kept."""
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
    """Parse little-endian 32-bit numbers: the number of tasks, their offsets, and the tasks."""
    reader = _Reader(data)
    count = reader.number()
    places = [reader.number() for _ in range(count)] if 4 * count <= len(data) else []
    if not places:
        raise RequestError("not a file of multiple-choice tasks")
    return [_Reader(data, place).task() for place in places]


class _Reader:
    """Reads the binary format of multiple-choice tasks."""

    def __init__(self, data: bytes, place: int = 0) -> None:
        self._data = data
        self._place = place

    def task(self) -> Task:
        """Read a question, answers with one correct, and answers with several correct, which are ignored."""
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
            raise RequestError(f"byte {self._place}: {count} answers exceed the limit of {MOST_ANSWERS}")
        return count

    def text(self) -> str:
        size = self.number()
        text = self._take(size)
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError:
            raise RequestError(f"the text at byte {self._place - size} is not valid UTF-8") from None

    def number(self) -> int:
        (value,) = struct.unpack("<I", self._take(4))
        return int(value)

    def _take(self, size: int) -> bytes:
        end = self._place + size
        if end > len(self._data):
            raise RequestError(f"truncated: ends at byte {len(self._data)} within a task")
        taken, self._place = self._data[self._place : end], end
        return taken


def _lines(data: bytes) -> list[str]:
    try:
        return data.decode("utf-8-sig").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise RequestError(f"not valid UTF-8 at byte {error.start}") from None


def _draw_hellaswag(tasks: list[Task], n: int) -> list[Task]:
    """Select tasks by libstdc++'s ``std::uniform_int_distribution`` (Lemire 2019, arXiv:1805.10941)."""
    words, remaining, drawn = LlamaGenerator(1).bit_generator, list(tasks), list[Task]()
    for _ in range(n):
        product = int(words.random_raw()) * len(remaining)
        while product % 2**32 < 2**32 % len(remaining):
            product = int(words.random_raw()) * len(remaining)
        drawn.append(remaining.pop(product >> 32))
    return drawn


def _draw(tasks: list[Task], n: int) -> list[Task]:
    """Select tasks by a float32 in [0, 1) each; the last remaining task replaces the selected one."""
    numbers, remaining, drawn = LlamaGenerator(1).random(n, np.float32), list(tasks), list[Task]()
    for number in numbers:
        i = int(number * np.float32(len(remaining)))
        drawn.append(remaining[i])
        remaining[i] = remaining[-1]
        remaining.pop()
    return drawn


_READERS: dict[str, Callable[[bytes], list[Task]]] = {
    "hellaswag": _hellaswag,
    "winogrande": _winogrande,
    "multiple-choice": _multiple_choice,
}
_DRAWS = {"hellaswag": _draw_hellaswag, "winogrande": _draw, "multiple-choice": _draw}

KINDS = tuple(_READERS)
