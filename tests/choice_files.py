"""Files of tasks with several answers, as llama-perplexity reads them."""

import struct
from collections.abc import Sequence

HELLASWAG = [
    "Playing: Tom saw a dog and then",
    "2",
    "he sat under the tree.",
    "the moon was made of sad string.",
    "the dog ran to him.",
    "nothing was.",
]
WINOGRANDE = [
    '1,"Lily gave Tom a red ball, and so _ was very happy that day.",Lily,Tom,2',
    "2,Ben saw the big old house before _ went home to eat.,Mia,Ben,1",
    '3,The box fell on the rug; the "_" was made of glass and broke.,box,rug,1',
]
QUESTIONS = [("What did Tom see?", ["a red ball", "a dog", "the moon of string"], 1), ("Who ran?", ["Tom", "a box"], 0)]


def multiple_choices(questions: Sequence[tuple[str, Sequence[str], int]] = QUESTIONS) -> bytes:
    """A file of llama.cpp's, whose second answers are of another number."""
    tasks = []
    for question, answers, right in questions:
        labels = [int(i == right) for i in range(len(answers))]
        several = numbers(1) + text("any") + numbers(1)
        tasks.append(text(question) + numbers(len(answers)) + b"".join(map(text, answers)) + numbers(*labels) + several)
    head = 4 + 4 * len(tasks)
    places = [head + sum(map(len, tasks[:i])) for i in range(len(tasks))]
    return numbers(len(tasks), *places) + b"".join(tasks)


def numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def text(value: str) -> bytes:
    return numbers(len(value.encode())) + value.encode()
