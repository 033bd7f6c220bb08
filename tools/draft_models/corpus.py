"""The training corpus: documents as token ids, one behind the other, in rows of one context length."""

from __future__ import annotations

import os
import time
from functools import partial
from itertools import islice
from multiprocessing import get_context

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from tools.demo_model.tokenizer import BOS_ID, EOS_ID, train

from .documents import documents

BATCH = 200
TOKENIZER_SHARD = -1


def train_tokenizer(seed: int, vocab_size: int, count: int) -> Tokenizer:
    """Train on ``count`` documents of a separate shard."""
    texts = (document.prompt + document.answer for document in documents(seed, TOKENIZER_SHARD))
    return train(islice(texts, count), vocab_size)


def encode_shard(
    shard: int, *, seed: int, count: int, seconds: float, tokenizer_json: str, length: int
) -> npt.NDArray[np.uint16]:
    """Encode at most ``count`` documents of a shard, for ``seconds`` at most; uint16 [n, length]."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # several processes run instead
    tokenizer = Tokenizer.from_str(tokenizer_json)
    end = time.monotonic() + seconds
    texts = (document.prompt + document.answer for document in islice(documents(seed, shard), count))
    tokens: list[int] = []
    while time.monotonic() < end and (batch := list(islice(texts, BATCH))):
        for encoding in tokenizer.encode_batch(batch):
            tokens += [BOS_ID, *encoding.ids, EOS_ID]
    n = len(tokens) // length
    return np.array(tokens[: n * length], np.uint16).reshape(n, length)


def encode_corpus(
    seed: int, shards: int, count: int, seconds: float, tokenizer: Tokenizer, length: int
) -> npt.NDArray[np.uint16]:
    """Encode the shards 1 to ``shards``, each in its own process; uint16 [n, length]."""
    encode = partial(
        encode_shard, seed=seed, count=count, seconds=seconds, tokenizer_json=tokenizer.to_str(), length=length
    )
    with get_context("spawn").Pool(shards) as pool:
        return np.concatenate(pool.map(encode, range(1, shards + 1), chunksize=1))
