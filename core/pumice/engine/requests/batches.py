"""Make the batch of a step from the next tokens of sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.backend.step import Batch, Memory, TappedRows, Taps
from pumice.engine.cache.blocks import BlockTables
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.media.rows import MediaRows, text_places
from pumice.engine.requests.arguments import Scales
from pumice.graph.media import IS_TOKEN, PLACES, ROWS


class EncoderMemory(NamedTuple):
    """The memory of an encoder's prompt of ``n_tokens`` tokens, which the decoder attends to."""

    tables: BlockTables
    n_tokens: int


@dataclass(eq=False)
class Place:
    """The resources of a sequence: a slot of recurrent state, and blocks of the KV cache."""

    slot: int
    tables: BlockTables
    memory: EncoderMemory | None = None


class Part(NamedTuple):
    """The tokens of a sequence in a batch, after ``n_past`` earlier ones; ``output_rows`` are rows with outputs.

    Negative tokens are ids of ``media``, or of a text without media those of slots (``LATEST``). ``rows`` are added to
    the embeddings of all tokens, of which negative ones have none.
    """

    place: Place
    tokens: Sequence[int]
    n_past: int
    output_rows: Sequence[int] = ()
    adapters: Scales = ()
    media: MediaRows | None = None
    taps: Taps | None = None
    rows: NDArray[np.float32] | None = None


def batch_of(cache: KVCache, parts: Sequence[Part]) -> Batch:
    """Return the batch of these sequences' next tokens, for all of which blocks are held."""
    batch = _batch(cache, parts)
    if len(batch.tokens) > cache.n_batch:
        raise RuntimeError(f"a step has {len(batch.tokens)} tokens, more than n_batch, {cache.n_batch}")
    for part in parts:
        if not cache.covers(part.place.tables, part.n_past + len(part.tokens)):
            raise RuntimeError("positions of a step lack blocks of the KV cache")
    return batch


def _batch(cache: KVCache, parts: Sequence[Part]) -> Batch:
    sizes = [len(part.tokens) for part in parts]
    starts = [0, *accumulate(sizes)]
    positions = chain.from_iterable(range(part.n_past, part.n_past + n) for part, n in zip(parts, sizes, strict=True))
    outputs = [start + row for part, start in zip(parts, starts, strict=False) for row in part.output_rows]
    tokens = np.fromiter(chain.from_iterable(part.tokens for part in parts), np.int32, starts[-1])
    inputs = _media(parts, tokens)
    tokens = np.maximum(tokens, 0) if inputs else tokens
    first = parts[0]
    return Batch(
        tokens=tokens,
        positions=np.fromiter(positions, np.int32, starts[-1]),
        output_ids=np.array(outputs, np.int32),
        seq_starts=np.array(starts, np.int32),
        slots=np.array([part.place.slot for part in parts], np.int32),
        block_tables=cache.batch_tables([part.place.tables for part in parts]),
        inputs=inputs,
        memory=_memory(cache, [part.place.memory for part in parts if part.place.memory]),
        adapters=[part.adapters for part in parts] if any(part.adapters for part in parts) else (),
        taps=[TappedRows(s, s + n, p.taps) for p, s, n in zip(parts, starts, sizes, strict=False) if p.taps],
        together=bool(first.media and first.tokens and first.media.n_together(first.tokens[0])),
    )


def batch_behind(cache: KVCache, parts: Sequence[Part]) -> Batch:
    """Return the batch of tokens of a draft, which may be behind those for which blocks are held.

    The first held block of an attention window stands for those before, which were released and which the first rows
    would read; other keys there affect proposals only.
    """
    batch = _batch(cache, parts)
    batch.block_tables = {window: _without_gaps(table) for window, table in batch.block_tables.items()}
    return batch


def _without_gaps(table: NDArray[np.int32]) -> NDArray[np.int32]:
    if (table[:, :1] >= 0).all():
        return table
    first = np.argmax(table >= 0, axis=1)[:, None]
    return np.where(np.arange(table.shape[1]) < first, np.take_along_axis(table, first, 1), table)


def batch_after(before: Batch, parts: Sequence[Part]) -> Batch:
    """Return the batch of a token of each sequence of a batch, whose tables had room for it, without media.

    It shares arrays with a batch ``before`` of a token each, by which a program knows steps that differ in little.
    """
    n = len(parts)
    is_alike = len(before.tokens) == len(before.output_ids) == n
    return Batch(
        tokens=np.array([part.tokens[0] for part in parts], np.int32),
        positions=np.array([part.n_past for part in parts], np.int32),
        output_ids=before.output_ids if is_alike else np.arange(n, dtype=np.int32),
        seq_starts=before.seq_starts if is_alike else np.arange(n + 1, dtype=np.int32),
        slots=before.slots,
        block_tables=before.block_tables,
    )


def _media(parts: Sequence[Part], tokens: NDArray[np.int32]) -> dict[str, NDArray[Any]]:
    """Return the inputs of a step with media, or after media that moved the places of tokens; else nothing."""
    brought = [part.rows for part in parts if part.rows is not None]
    moved = bool(brought) or any(part.media is not None and part.media.places is not None for part in parts)
    n_media = sum(token < 0 for part in parts if part.media for token in part.tokens)
    if not n_media and not moved:
        return {}
    brought += [part.media.spans[0][1] for part in parts if part.media and part.media.spans]
    width = next((rows.shape[1] for rows in brought), 0)
    rows, end, n_known = np.empty((len(tokens), width), np.float32), 0, 0
    for part in parts:
        start, end = end, end + len(part.tokens)
        if part.media:
            n_known += part.media.copy_rows(tokens[start:end], rows[start:end])
        else:
            rows[start:end] = 0 if part.rows is None else part.rows
    if n_known < n_media:
        raise RuntimeError(f"the batch has {n_media} positions of media, but rows for {n_known}")
    inputs: dict[str, NDArray[Any]] = {ROWS: rows, IS_TOKEN: (tokens[:, None] >= 0).astype(np.float32)}
    if moved:
        inputs[PLACES] = np.concatenate([_places(part) for part in parts])
    return inputs


def _places(part: Part) -> NDArray[np.int32]:
    n = len(part.tokens)
    return part.media.places_from(part.n_past, n) if part.media else text_places(part.n_past, n)


def _memory(cache: KVCache, read: Sequence[EncoderMemory]) -> Memory | None:
    if not read:
        return None
    tables = cache.batch_tables([memory.tables for memory in read])[0]
    return Memory(np.array([memory.n_tokens for memory in read], np.int32), tables)
