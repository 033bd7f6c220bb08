"""Flash attention over the paged cache in one pass, with a running maximum and sum per query (Dao et al. 2022,
arXiv:2205.14135).

The queries of a sequence that share a key head are rows: row ``i`` is head ``i % group`` of the key head's group at
token ``i // group``. A thread takes up to ROWS rows, decodes CHUNK positions of the cache at a time, and passes over
them with a few rows in registers: scores (lanes are positions), weights, then values (lanes are columns).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pumice_cpu.kernels.attention_parts import Bias, Sequences, Shape, item_finder, layout_at
from pumice_cpu.kernels.attention_rows import row_function
from pumice_cpu.kernels.attention_softmax import softmax_functions
from pumice_cpu.kernels.common import inline, part_start, transpose
from pumice_cpu.kernels.kv_cache import tile_reader
from pumice_cpu.kv_cache import CHUNK, PART, scratch_at
from pumice_cpu.simd import bits_f32, get_i32, get_i64, load_f32, put_i32, registers_f32, splat_f32, store_f32

layout = inline(scratch_at)


@inline
def transpose_stored(source, y, registers, spare):
    """Transpose 16 vectors. ``y`` has the layout of ``source``, with a stride of 64 bytes."""
    for i in range(16):
        registers[i] = load_f32(source + 64 * i)
    transpose(registers, spare)
    for i in range(16):
        store_f32(y + 64 * i, registers[i])


@functools.cache
def cell_decoder(kv_type: str, cells: str) -> Any:
    """Return a function that decodes a chunk of the cache."""
    read_tile = tile_reader(kv_type, cells)

    @inline
    def decode(shape, part, buffers, chunk, start, n, keys, values, block_size, registers, spare):
        """Decode keys and values of positions ``chunk + start`` to ``chunk + n``; the lanes of values are columns."""
        for i in range(start, n, 16):
            source = buffers.keys + 4 * i * shape.k_dim
            read_tile(
                keys.cache + part.head * keys.head_bytes, part.blocks, chunk + i, part.first, part.end, block_size,
                keys.tile_bytes, keys.dim, keys.unit, source,
            )  # fmt: skip
            if values.cache != 0:
                source = buffers.columns
                read_tile(
                    values.cache + part.head * values.head_bytes, part.blocks, chunk + i, part.first, part.end,
                    block_size, values.tile_bytes, values.dim, values.unit, source,
                )  # fmt: skip
            for v in range((shape.v_dim + 15) // 16):
                to = buffers.values + 64 * (v * CHUNK + i)
                transpose_stored(source + 1024 * v, to, registers, spare)

    return decode


def part_function(kv_type: str, rows: int, width: int, cells: str, scores: str, mask: str) -> Any:
    """Return a function that attends to the positions of a work item; arguments as in ``attend``."""
    span = 16 * width  # positions
    decode, attend_rows = cell_decoder(kv_type, cells), row_function(rows, width, scores, mask)
    _, begin_part, end_part, _ = softmax_functions(rows)

    @inline
    def attend_part(
        shape, part, buffers, keys, values, block_size, capping, biases, partial, total, vectors, registers, spare
    ):
        """Decode CHUNK positions at a time, and attend with all rows to them; merge the softmax after each PART."""
        begin_part(shape, part, buffers)
        for chunk in range(part.first // CHUNK * CHUNK, part.end, CHUNK):
            start = (part.first - chunk) // span * span if part.first > chunk else np.int64(0)
            chunk_end = part.end - chunk if part.end - chunk < CHUNK else np.int64(CHUNK)
            decode(shape, part, buffers, chunk, start, chunk_end, keys, values, block_size, registers, spare)
            for r0 in range(0, part.n, shape.at_once):
                attend_rows(shape, part, buffers, r0, chunk, chunk_end, capping, biases, total, vectors)
            if partial == 0 and (chunk + CHUNK >= part.end or (chunk + CHUNK) % PART == 0):
                end_part(shape, part, buffers)
                begin_part(shape, part, buffers)

    return attend_part


def attend(kv_type: str, registers: str, cells: str, scores: str, mask: str) -> Any:
    """Return an attention kernel for all queries of a batch.

    A score is ``scale * q . k``, optionally ``cap * tanh`` of it, in units of ln 2. An item of work is up to ROWS
    queries of a key head at the positions of one multiple of ``part_size``. Positions are decoded CHUNK at a time, and
    the results of each PART are merged in order, both counted from position 0, so a token's result is bit-identical in
    any batch.

    Args:
        kv_type: type of the cache.
        registers: queries in registers times vectors of positions, or columns, beside each, such as ``8x2``.
        cells: ``tiles`` if blocks of the cache are whole tiles, else ``any``.
        scores: variants of the score. ``capped``: use ``cap``. ``biased``: add a value of the query head's row of
            ``bias``, ``stride`` values long, where index ``zero`` is the query's own position. ``chosen``: each token
            has a row of ``bias`` with a value for each position.
        mask: a key of SEEN.

    Arguments of the kernel:
        positions, seq_starts, n_seqs, table: addresses in the step block.
        lengths: address of the number of attended positions of each sequence; 0: all positions after this step.
        partial: 0: one part, whose result is final. Else the step has one token, and ``merge`` combines the partial
            results stored at this address.
        at_once: number of queries in registers; an argument, so that LLVM does not unroll loops over them.
        keys, values: addresses of a ``CellLayout``; if that of the values is zero, values are the first
            ``v_dim`` columns of the keys.
        scratch: scratch memory for each thread (``kv_cache.scratch_at``).
    """
    rows, width = (int(number) for number in registers.split("x"))
    n_total, span, attend_part = rows * width, 16 * width, part_function(kv_type, rows, width, cells, scores, mask)
    prepare, _, _, finish = softmax_functions(rows)
    find_item = item_finder(mask)

    def kernel(
        thread, n_threads, ticket, n_seqs, seq_starts, positions, table, block_size,
        q, y, sinks, n_head, group, scale, cap, window, keys, values, v_dim, log_sum, lengths, bias, stride, zero,
        part_size, partial, at_once, scratch,
    ):  # fmt: skip
        total, vectors = registers_f32(n_total), registers_f32(width)
        registers, spare = registers_f32(16), registers_f32(16)
        key_cells, value_cells = layout_at(keys), layout_at(values)
        k_dim, k_width, v_width = key_cells.dim, (key_cells.dim + 31) // 32 * 32, (v_dim + span - 1) // span * span
        shape = Shape(n_head, group, k_dim, v_dim, k_width, v_width, window, part_size, at_once)
        buffers = layout(scratch + thread * layout(0, rows, k_dim, v_dim).end, rows, k_dim, v_dim)
        factor, capping = splat_f32(bits_f32(scale)), splat_f32(bits_f32(cap))
        biases, sequences = Bias(bias, stride, zero), Sequences(n_seqs, seq_starts, positions, lengths, table)

        seq, before, part = find_item(shape, ticket, np.int64(0), np.int64(0), sequences, n_threads)
        while part.n > 0:
            prepare(shape, part, buffers, q, sinks, factor)
            attend_part(
                shape, part, buffers, key_cells, value_cells, block_size, capping, biases, partial,
                total, vectors, registers, spare,
            )  # fmt: skip
            finish(shape, part, buffers, y, partial, log_sum)
            seq, before, part = find_item(shape, ticket, seq, before, sequences, n_threads)

    return kernel


def number_rows(thread, n_threads, n_seqs, seq_starts, positions, table, width):
    """Fill a block table with blocks of one position: the cell of each row of a step without a cache."""
    starts, token_positions = get_i64(seq_starts), get_i64(positions)
    n_seqs = get_i64(n_seqs)
    for seq in range(part_start(n_seqs, thread, n_threads), part_start(n_seqs, thread + 1, n_threads)):
        for token in range(get_i32(starts + 4 * seq), get_i32(starts + 4 * seq + 4)):
            position = np.int64(get_i32(token_positions + 4 * token))
            put_i32(table + 4 * (seq * width + position), np.int32(token))
