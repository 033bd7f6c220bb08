"""Pairs of pictures with rows of tokens about them, as arrays, drawn by many processes."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from .dialogues import Writer
from .scenes import covered, draw, fitted, scenes


@dataclass(frozen=True)
class DataConfig:
    image_size: int = 96
    grid: int = 12
    """Patches a side."""
    n_rows: int = 16
    """Tokens of a picture."""
    length: int = 160
    n_texts: int = 4
    """Rows for each pair and picture."""
    n_pairs: int = 500
    """Pairs of a shard."""


@dataclass
class Pairs:
    """Pairs of pictures.

    pictures uint8 [n, 2, size, size, 3]; covered uint8 [n, 2, grid * grid]; tokens uint16 [n, n_texts, 2, length], with
    zeros behind a text; first uint8 [n, n_texts, 2], the picture that a text's first one is: the other one follows.
    """

    pictures: npt.NDArray[np.uint8]
    covered: npt.NDArray[np.uint8]
    tokens: npt.NDArray[np.uint16]
    first: npt.NDArray[np.uint8]


def make_shard(shard: int, *, seed: int, tokenizer_json: str, config: DataConfig) -> Pairs:
    """Draw the pairs of a shard."""
    random = Random(f"{seed}/{shard}/texts")
    writer = Writer(Tokenizer.from_str(tokenizer_json), config.length, config.n_rows)
    n, size = config.n_pairs, config.image_size
    pairs = Pairs(
        np.zeros((n, 2, size, size, 3), np.uint8),
        np.zeros((n, 2, config.grid**2), np.uint8),
        np.zeros((n, config.n_texts, 2, config.length), np.uint16),
        np.zeros((n, config.n_texts, 2), np.uint8),
    )
    source = scenes(seed, shard)
    for i in range(n):
        pair = (next(source), next(source))
        for j, scene in enumerate(pair):
            pairs.pictures[i, j] = np.asarray(fitted(draw(scene, random), size))
            pairs.covered[i, j] = covered(scene, config.grid)
        for text in range(config.n_texts):
            for j, row in enumerate(writer.rows(pair, random)):
                tokens = row.tokens[: config.length]
                pairs.tokens[i, text, j, : len(tokens)] = tokens
                pairs.first[i, text, j] = row.pictures[0] if row.pictures else 0
    return pairs


@contextmanager
def drawing(seed: int, tokenizer_json: str, config: DataConfig, processes: int) -> Iterator[Iterator[Pairs]]:
    """Yield the shards 0, 1, ... in order, drawn by processes that end with the context."""
    make = partial(make_shard, seed=seed, tokenizer_json=tokenizer_json, config=config)
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield _bounded(pool, make, 4 * processes)


def _bounded(pool: multiprocessing.pool.Pool, make: partial[Pairs], n: int) -> Iterator[Pairs]:
    """Yield results in order, with at most ``n`` shards ahead."""
    waiting = [pool.apply_async(make, (shard,)) for shard in range(n)]
    for shard in itertools.count(n):
        yield waiting.pop(0).get()
        waiting.append(pool.apply_async(make, (shard,)))
