"""Embeddings of n-grams: a token and the previous ones select rows of a table by a hash.

Svenstrup et al. 2017, arXiv:1709.03933.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from pumice.plugin import GraphBuilder, HParams, ModelError, Tensor
from pumice.plugin.nn.blocks import n_vocab
from pumice.plugin.nn.recurrent import split

LONGEST = 8  # maximum tokens of an n-gram
MOST_HEADS = 64  # maximum heads per token
LARGEST_TOKEN = 2**24  # up to which float32 represents every integer


@dataclass(frozen=True)
class NGrams:
    """The longest n-gram has ``n`` tokens; multipliers, sizes and offsets are those of the operation ``ngram_rows``.

    N-grams do not cross the token ``end`` of a text, which replaces missing tokens.
    """

    n: int
    end: int
    dim: int  # values per row of the table
    multipliers: tuple[int, ...]
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]

    def embedding(self, g: GraphBuilder) -> Tensor:
        """Return the rows of each token's n-grams, concatenated: ``[t, n_heads * dim]``."""
        name = "per_layer_token_embd.weight"
        n_rows = max(size + offset for size, offset in zip(self.sizes, self.offsets, strict=True))
        table = g.weight(name, (max(n_rows, int(g.weight(name).shape[0])), self.dim))
        tokens = self.last_tokens(g)
        rows = g.ngram_rows(tokens, multipliers=self.multipliers, sizes=self.sizes, offsets=self.offsets)
        return g.embedding(table, rows).reshape(tokens.shape[0], len(self.sizes) * self.dim)

    def last_tokens(self, g: GraphBuilder) -> Tensor:
        """Return each token and the previous ones: ``[t, n]``.

        Ids are relative to ``end``, so that it and everything before it, or before the sequence, are 0.
        """
        if n_vocab(g) > LARGEST_TOKEN:
            raise ModelError(
                f"tensor token_embd.weight has {n_vocab(g)} tokens, but n-grams support at most {LARGEST_TOKEN}"
            )
        counted = g.constant("ids from the end", np.arange(n_vocab(g)) - self.end)
        x = g.embedding(counted, g.tokens).reshape(g.tokens.shape[0], 1)
        one_each = g.constant("the last tokens", np.eye(self.n)[::-1])
        token, last, *others = split(g, g.conv1d(reduce(g.concat, [x] * self.n), one_each, None), *[1] * self.n)
        tokens = [token, last]
        for other in others:
            tokens.append(other * g.clamp(tokens[-1] * tokens[-1], 0.0, 1.0))
        return g.scale(reduce(g.concat, tokens), 1.0, float(self.end))


def read_ngrams(hparams: HParams) -> NGrams:
    n = _at_most(hparams, "ple.ngram_size", LONGEST, low=2)
    n_heads = (n - 1) * _at_most(hparams, "ple.heads_per_ngram", MOST_HEADS // (n - 1))
    return NGrams(
        n=n,
        end=_at_most(hparams, "ple.eos_token_id", LARGEST_TOKEN, low=0),
        dim=hparams.positive("embedding_length_per_layer_input"),
        multipliers=_numbers(hparams, "ple.layer_multipliers", n),
        sizes=_numbers(hparams, "ple.head_vocab_sizes", n_heads, low=1),
        offsets=_numbers(hparams, "ple.head_offsets", n_heads),
    )


def _at_most(hparams: HParams, key: str, most: int, low: int = 1) -> int:
    value = hparams.get_int(key)
    if not low <= value <= most:
        raise hparams.wrong(key, f"is {value}, but must be from {low} to {most}")
    return value


def _numbers(hparams: HParams, key: str, n: int, low: int = 0) -> tuple[int, ...]:
    values = hparams.integers(key)
    if len(values) < n:
        raise hparams.wrong(key, f"has {len(values)} numbers, but n-grams need {n}")
    if min(values) < low:
        raise hparams.wrong(key, f"has {min(values)}, but all values must be at least {low}")
    return tuple(values[:n])
