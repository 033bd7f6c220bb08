"""Scoring: the mean log-probability of what a task's texts do not share, counted as llama-perplexity does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from pumice.choices.tasks import Task
from pumice.errors import RequestError
from pumice.perplexity import Scorer, log_probabilities

Z = 1.95996398454  # standard deviations around the mean with 95 % of a normal distribution
FEWEST_TOKENS = 3  # after what all texts share; where there are no more, what is given counts too

Tokenize = Callable[[str], Sequence[int]]


@dataclass(frozen=True)
class Score:
    """After some tasks: the share of right answers, its standard error, and what guessing gives.

    low, high: the interval of 95 % (Wilson 1927).
    """

    accuracy: float
    error: float
    low: float
    high: float
    chance: float
    n_tasks: int


def measure(model: Scorer, tokenize: Tokenize, tasks: Sequence[Task]) -> Iterator[Score]:
    """The score after each task; the last one is the result.

    tokenize: a text to tokens, with BOS if the model wants it. RequestError for a text that does not fit the context.
    """
    n_right = n_texts = 0
    for n_tasks, task in enumerate(tasks, 1):
        scores = log_likelihoods(model, tokenize, task)
        n_right += int(np.argmax(scores)) in task.right
        n_texts += len(scores)
        yield _score(n_right, n_tasks, n_tasks / n_texts)


def log_likelihoods(model: Scorer, tokenize: Tokenize, task: Task) -> list[float]:
    """Of each text the mean log-probability of its tokens after what all share.

    Where something is given and enough follows, of those after that; then the last token, a full stop, never counts.
    """
    texts = [list(tokenize(text)) for text in task.texts]
    if min(map(len, texts)) < 2:
        raise RequestError(f"{min(task.texts, key=len)!r} is a single token, which nothing predicts")
    shared = min(_n_alike(texts), *(len(text) - 1 for text in texts))
    begin = max(shared, 1)
    firsts, end = [begin] * len(texts), 0
    if task.given:
        end = 1
        if min(map(len, texts)) - shared > FEWEST_TOKENS:
            firsts = [max(begin, len(tokenize(given))) for given in task.given]
    values = zip(_log_probabilities(model, texts, shared), firsts, strict=True)
    return [_mean(each[first - begin :] if len(each) > first - begin else each, end) for each, first in values]


def _log_probabilities(model: Scorer, texts: Sequence[list[int]], shared: int) -> Iterator[NDArray[np.float64]]:
    """Of the tokens of each text after those that all share, but of none before the second."""
    groups = [texts] if shared else [[text] for text in texts]
    begin = max(shared, 1)
    for group in groups:
        endings = [text[begin:] for text in group]
        for logits, ending in zip(model.continuation_logits(group[0][:begin], endings), endings, strict=True):
            yield log_probabilities(logits, np.array(ending))


def _n_alike(texts: Sequence[Sequence[int]]) -> int:
    """How many tokens all texts begin with."""
    return sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*texts, strict=False)))


def _mean(values: NDArray[np.float64], n_left_out: int) -> float:
    return float(values[: max(len(values) - n_left_out, 1)].mean())


def _score(n_right: int, n: int, chance: float) -> Score:
    p, z = n_right / n, Z * Z / n
    spread = z * math.sqrt(n * (4 * p * (1 - p) + z)) / (2 * Z)
    low, high = ((p + z / 2 - spread) / (1 + z), (p + z / 2 + spread) / (1 + z))
    error = math.sqrt(p * (1 - p) / (n - 1)) if n > 1 else 0.0
    return Score(p, error, max(low, 0.0), min(high, 1.0), chance, n)
