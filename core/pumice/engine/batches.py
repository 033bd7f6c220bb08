"""From sequences to the batch of a step: their next tokens, one sequence behind the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np

from pumice.adapters import SCALES
from pumice.engine.kv_cache import BlockTables, KVCache
from pumice.step import Batch, Memory


class Read(NamedTuple):
    """What an encoder kept of a prompt of so many tokens: the decoder attends to it."""

    tables: BlockTables
    n_tokens: int


@dataclass(eq=False)
class Place:
    """What a sequence has of the engine: a slot of recurrent state, and blocks of the cache."""

    slot: int
    tables: BlockTables
    memory: Read | None = None


class Part(NamedTuple):
    """A sequence's part in a batch: ``tokens`` after ``n_past`` others, of which some rows are ``wanted``."""

    place: Place
    tokens: Sequence[int]
    n_past: int
    wanted: Sequence[int] = ()
    adapter_scales: Sequence[float] = ()


def batch_of(cache: KVCache, parts: Sequence[Part]) -> Batch:
    """The step of these sequences' next tokens; its outputs are the rows that they want."""
    sizes = [len(part.tokens) for part in parts]
    starts = [0, *accumulate(sizes)]
    positions = chain.from_iterable(range(part.n_past, part.n_past + n) for part, n in zip(parts, sizes, strict=True))
    outputs = [start + row for part, start in zip(parts, starts, strict=False) for row in part.wanted]
    scales = np.array([part.adapter_scales for part in parts], np.float32)
    return Batch(
        tokens=np.fromiter(chain.from_iterable(part.tokens for part in parts), np.int32, starts[-1]),
        positions=np.fromiter(positions, np.int32, starts[-1]),
        output_ids=np.array(outputs, np.int32),
        seq_starts=np.array(starts, np.int32),
        slots=np.array([part.place.slot for part in parts], np.int32),
        block_tables=cache.batch_tables([part.place.tables for part in parts]),
        inputs={SCALES: np.repeat(scales, sizes, axis=0)} if scales.size else {},
        memory=_memory(cache, [part.place.memory for part in parts if part.place.memory]),
    )


def _memory(cache: KVCache, read: Sequence[Read]) -> Memory | None:
    if not read:
        return None
    tables = cache.batch_tables([each.tables for each in read])[0]
    return Memory(np.array([each.n_tokens for each in read], np.int32), tables)
