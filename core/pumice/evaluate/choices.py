"""Score tasks by the mean log-probability of the parts of texts that differ, as llama-perplexity does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from pumice.errors import RequestError
from pumice.evaluate.perplexity import Scorer, log_probabilities
from pumice.evaluate.tasks import Task

Z = 1.95996398454  # standard deviations of the 95 % interval of a normal distribution
FEWEST_TOKENS = 3  # minimum tokens after the common prefix; with fewer, the unscored beginnings count, too

Tokenize = Callable[[str], Sequence[int]]


@dataclass(frozen=True)
class TaskScore:
    """The share of correct answers after some tasks, its standard error, and the expected share of guesses.

    ``low`` and ``high`` are the 95 % interval (Wilson 1927).
    """

    accuracy: float
    error: float
    low: float
    high: float
    chance: float
    n_tasks: int


def measure(model: Scorer, tokenize: Tokenize, tasks: Sequence[Task]) -> Iterator[TaskScore]:
    """Yield the score after each task; the last one is the result.

    Args:
        model: the model.
        tokenize: converts a text to tokens, with BOS if the model expects it.
        tasks: texts with the correct choices.

    Raises:
        RequestError: a text exceeds the context.
    """
    n_right = n_texts = 0
    for n_tasks, task in enumerate(tasks, 1):
        scores = log_likelihoods(model, tokenize, task)
        n_right += int(np.argmax(scores)) in task.right
        n_texts += len(scores)
        yield _score(n_right, n_tasks, n_tasks / n_texts)


def log_likelihoods(model: Scorer, tokenize: Tokenize, task: Task) -> list[float]:
    """Return each text's mean log-probability of the tokens after the common prefix.

    If the task has unscored beginnings and enough tokens follow them, only those tokens count, except the last one, a
    full stop.

    Raises:
        RequestError: a text is a single token, or exceeds the context.
    """
    texts = [list(tokenize(text)) for text in task.texts]
    if min(map(len, texts)) < 2:
        raise RequestError(f"{min(task.texts, key=len)!r} is a single token, so there is nothing to predict")
    shared = min(_n_alike(texts), *(len(text) - 1 for text in texts))
    begin = max(shared, 1)
    firsts, end = [begin] * len(texts), 0
    if task.beginnings:
        end = 1
        if min(map(len, texts)) - shared > FEWEST_TOKENS:
            firsts = [max(begin, len(tokenize(beginning))) for beginning in task.beginnings]
    values = zip(_log_probabilities(model, texts, shared), firsts, strict=True)
    return [_mean(row[first - begin :] if len(row) > first - begin else row, end) for row, first in values]


def _log_probabilities(model: Scorer, texts: Sequence[list[int]], shared: int) -> Iterator[NDArray[np.float64]]:
    """Yield the log-probabilities of each text's tokens after the common prefix, from the second token on."""
    groups = [texts] if shared else [[text] for text in texts]
    begin = max(shared, 1)
    for group in groups:
        endings = [text[begin:] for text in group]
        for logits, ending in zip(model.continuation_logits(group[0][:begin], endings), endings, strict=True):
            yield log_probabilities(logits, np.array(ending))


def _n_alike(texts: Sequence[Sequence[int]]) -> int:
    """Return the length of the common prefix."""
    return sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*texts, strict=False)))


def _mean(values: NDArray[np.float64], n_left_out: int) -> float:
    return float(values[: max(len(values) - n_left_out, 1)].mean())


def _score(n_right: int, n: int, chance: float) -> TaskScore:
    p, z = n_right / n, Z * Z / n
    spread = z * math.sqrt(n * (4 * p * (1 - p) + z)) / (2 * Z)
    low, high = ((p + z / 2 - spread) / (1 + z), (p + z / 2 + spread) / (1 + z))
    error = math.sqrt(p * (1 - p) / (n - 1)) if n > 1 else 0.0
    return TaskScore(p, error, max(low, 0.0), min(high, 1.0), chance, n)
