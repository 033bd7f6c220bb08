"""Entropy of the generator: the lower bound of any model's cross-entropy on its stories.

The probability of a story is exact: the grammar's reader adds up all sequences of choices that produce the text. A
story's tokens and its EOS have the same probability as its text, so the mean of -log p over stories, divided by their
mean number of predicted tokens, is the lowest possible cross-entropy per token.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from tokenizers import Tokenizer

from .checker import check
from .generate import stories


@dataclass(frozen=True)
class Entropy:
    stories: int
    nats_per_story: float
    tokens_per_story: float
    """Number of predicted tokens, including the EOS."""
    nats_per_token: float
    perplexity: float


def entropy(seed: int, shard: int, count: int, tokenizer: Tokenizer) -> Entropy:
    """Estimate the entropy from the log-probabilities of the first `count` stories of a shard."""
    texts = [story.text for story in itertools.islice(stories(seed, shard), count)]
    nats = -sum(check(text).log_p for text in texts)
    tokens = sum(len(encoding.ids) + 1 for encoding in tokenizer.encode_batch(texts))
    return Entropy(count, nats / count, tokens / count, nats / tokens, math.exp(nats / tokens))
