"""The training corpus: stories as token ids, packed whole into rows of one context length.

A row holds `BOS story EOS` several times, padded with EOS; no token after an EOS is predicted.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from functools import partial
from multiprocessing import Pool
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from .generate import stories
from .tokenizer import BOS_ID, EOS_ID

OPEN_ROWS = 32
BATCH = 1000


class Shard(NamedTuple):
    rows: npt.NDArray[np.uint16]
    """[n, length]"""
    n_predicted: int
    """Number of predicted tokens: those of the stories and their EOS."""


def pack(documents: Iterable[Sequence[int]], length: int) -> npt.NDArray[np.uint16]:
    """Put every document into the fullest open row with room for it; uint16 [n, length]."""
    done: list[list[int]] = []
    rows: list[list[int]] = []
    for document in documents:
        if len(document) > length:
            raise ValueError(f"a story of {len(document)} tokens does not fit into {length}")
        fitting = [row for row in rows if len(row) + len(document) <= length]
        if fitting:
            max(fitting, key=len).extend(document)
            continue
        if len(rows) == OPEN_ROWS:
            fullest = max(rows, key=len)
            rows = [row for row in rows if row is not fullest]
            done.append(fullest)
        rows.append(list(document))
    packed = np.full((len(done) + len(rows), length), EOS_ID, np.uint16)
    for packed_row, row in zip(packed, done + rows, strict=True):
        packed_row[: len(row)] = row
    return packed


def encode_shard(shard: int, *, seed: int, count: int, tokenizer_json: str, length: int) -> Shard:
    """Encode the first `count` stories of a shard."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # this module runs several processes instead
    tokenizer = Tokenizer.from_str(tokenizer_json)
    texts = (story.text for story in itertools.islice(stories(seed, shard), count))
    documents = []
    while batch := list(itertools.islice(texts, BATCH)):
        documents += [[BOS_ID, *encoding.ids, EOS_ID] for encoding in tokenizer.encode_batch_fast(batch)]
    return Shard(pack(documents, length), sum(map(len, documents)) - len(documents))


def encode_corpus(
    seed: int, shards: int, count: int, tokenizer: Tokenizer, length: int, processes: int
) -> tuple[npt.NDArray[np.uint16], int]:
    """Encode `count` stories of each of the shards 0 ... shards - 1; return rows and the number of predicted tokens."""
    encode = partial(encode_shard, seed=seed, count=count, tokenizer_json=tokenizer.to_str(), length=length)
    with Pool(processes) as pool:
        encoded = pool.map(encode, range(shards), chunksize=1)
    return np.concatenate([shard.rows for shard in encoded]), sum(shard.n_predicted for shard in encoded)
