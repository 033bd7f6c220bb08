"""Flash attention over the paged cache, in one pass: a running maximum and sum for each query (Dao et al. 2022,
arXiv:2205.14135).

The queries of a sequence that read one key head are rows: row ``i`` is head ``i % group`` of that key head's group
at token ``i // group``. A thread takes up to ROWS of them, decodes CHUNK positions of the cache at a time, and goes
over these with a few rows in registers: scores (lanes are positions), weights, then values (lanes are columns).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice_cpu.kernels.attention_parts import SEEN, Bias, Shape, layout_at, part_finder
from pumice_cpu.kernels.attention_rows import row_function
from pumice_cpu.kernels.attention_softmax import softmax_functions
from pumice_cpu.kernels.common import inline, next_part, part_start, transpose
from pumice_cpu.kernels.kv_cache import tile_reader
from pumice_cpu.kv_cache import CHUNK, PART, ROWS, scratch_at
from pumice_cpu.simd import bits_f32, get_i32, get_i64, load_f32, put_i32, registers_f32, splat_f32, store_f32


@inline
def transpose_stored(source, y, registers, spare):
    """16 vectors to what are their columns. ``y`` is as ``source``, 64 bytes apart."""
    for i in range(16):
        registers[i] = load_f32(source + 64 * i)
    transpose(registers, spare)
    for i in range(16):
        store_f32(y + 64 * i, registers[i])


def cell_decoder(kv_type: str, cells: str) -> Any:
    """What decodes a chunk of the cache."""
    read_tile = tile_reader(kv_type, cells)

    @inline
    def decode(shape, part, at, chunk, start, n, keys, values, block_size, registers, spare):
        """Keys and values from position ``chunk + start`` to ``chunk + n``; values turned over, so that lanes are
        columns.
        """
        for i in range(start, n, 16):
            source = at.keys + 4 * i * shape.k_dim
            read_tile(
                keys.cache + part.head * keys.head_bytes, part.blocks, chunk + i, part.first, part.end, block_size,
                keys.tile_bytes, keys.dim, keys.unit, source,
            )  # fmt: skip
            if values.cache != 0:
                source = at.columns
                read_tile(
                    values.cache + part.head * values.head_bytes, part.blocks, chunk + i, part.first, part.end,
                    block_size, values.tile_bytes, values.dim, values.unit, source,
                )  # fmt: skip
            for v in range((shape.v_dim + 15) // 16):
                to = at.values + 64 * (v * CHUNK + i)
                transpose_stored(source + 1024 * v, to, registers, spare)

    return decode


def attend(kv_type: str, registers: str, cells: str, scores: str, mask: str) -> Any:
    """A kernel that attends with every query of the batch, some at a time in registers: ``8x2`` are 8 with 2 vectors of
    positions, or of columns, beside each.

    ``cells`` is ``tiles`` if blocks of the cache are whole tiles, else ``any``. A score is ``scale * q . k``; where
    ``scores`` has ``capped`` in it, ``cap * tanh`` of it; in units of ln 2. Where it has ``biased``, a value of the
    query head's row of ``bias`` is added, ``stride`` values long: at ``zero`` that of the query's own position, behind
    it those of the next. Where it has ``chosen``, a token has a row of ``bias``, with a value for each position.
    ``mask`` is one of SEEN.

    ``positions``, ``seq_starts``, ``n_seqs`` and ``table`` are places in the step block, as ``lengths``: of each
    sequence the positions that are attended to; 0: all that it has after this step. A part of the work is up to
    ROWS queries of a key head at positions of one multiple of ``part_size``. With ``partial`` 0 there is one part and
    the result is final; else the step has one token, and ``merge`` makes the result of what is left at ``partial``.
    Positions are decoded CHUNK at a time, and what comes of each PART of them is merged in their order, both counted
    from position 0: so a token's result is the same to the last bit, whatever tokens are beside it.

    ``at_once`` is the number of queries in registers: one that LLVM does not know, where loops are not to be unrolled.
    ``keys`` and ``values`` are addresses of a ``CellLayout``; where that of the values is zeros, they are the first
    ``v_dim`` of the keys. ``scratch`` has room for each thread (``kv_cache.scratch_at``).
    """
    rows, width = (int(each) for each in registers.split("x"))
    n_total, span = rows * width, 16 * width
    decode, attend_rows = cell_decoder(kv_type, cells), row_function(rows, width, scores, mask)
    prepare, begin_part, end_part, finish = softmax_functions(rows)
    layout, (first_of, end_of), part_of = inline(scratch_at), SEEN[mask], part_finder(mask)

    def kernel(
        thread, n_threads, ticket, n_seqs, seq_starts, positions, table, block_size,
        q, y, sinks, n_head, group, scale, cap, window, keys, values, v_dim, log_sum, lengths, bias, stride, zero,
        part_size, partial, at_once, scratch,
    ):  # fmt: skip
        total, vectors = registers_f32(n_total), registers_f32(width)
        registers, spare = registers_f32(16), registers_f32(16)
        key_cells, value_cells = layout_at(keys), layout_at(values)
        k_dim, k_width, v_width = key_cells.dim, (key_cells.dim + 31) // 32 * 32, (v_dim + 31) // 32 * 32
        shape = Shape(n_head, group, k_dim, v_dim, k_width, v_width, window, part_size, at_once)
        thread_bytes = layout(0, rows, k_dim, v_dim).end
        at = layout(scratch + thread * thread_bytes, rows, k_dim, v_dim)
        factor, capping = splat_f32(bits_f32(scale)), splat_f32(bits_f32(cap))
        biases = Bias(bias, stride, zero)
        starts, token_positions = get_i64(seq_starts), get_i64(positions)

        seq, before = np.int64(0), np.int64(0)  # parts of the sequences before this one
        item = next_part(ticket)
        while seq < get_i64(n_seqs):
            token, next_token = np.int64(get_i32(starts + 4 * seq)), np.int64(get_i32(starts + 4 * seq + 4))
            past = np.int64(get_i32(token_positions + 4 * token))  # tokens of a sequence are at successive positions
            n_tokens = next_token - token
            length = past + n_tokens if lengths == 0 else np.int64(get_i32(get_i64(lengths) + 4 * seq))
            n_parts = (end_of(past + n_tokens - 1, window, length) - 1) // part_size
            n_parts += 1 - first_of(past, window, length) // part_size
            n_head_kv = n_head // group
            n_all = (n_tokens * group + ROWS - 1) // ROWS * n_parts * n_head_kv
            if item - before >= n_all:
                before += n_all
                seq += 1
                continue
            blocks = get_i64(table) + 4 * seq * get_i64(table + 8)
            part = part_of(shape, item - before, n_parts, n_head_kv, token, past, n_tokens, length, blocks)
            prepare(shape, part, at, q, sinks, factor)
            begin_part(shape, part, at)
            for chunk in range(part.first // CHUNK * CHUNK, part.end, CHUNK):
                start = (part.first - chunk) // span * span if part.first > chunk else np.int64(0)
                chunk_end = part.end - chunk if part.end - chunk < CHUNK else np.int64(CHUNK)
                decode(shape, part, at, chunk, start, chunk_end, key_cells, value_cells, block_size, registers, spare)
                for r0 in range(0, part.n, at_once):
                    attend_rows(shape, part, at, r0, chunk, chunk_end, capping, biases, total, vectors)
                if partial == 0 and (chunk + CHUNK >= part.end or (chunk + CHUNK) % PART == 0):
                    end_part(shape, part, at)
                    begin_part(shape, part, at)
            finish(shape, part, at, y, partial, log_sum)
            item = next_part(ticket)

    return kernel


def number_rows(thread, n_threads, n_seqs, seq_starts, positions, table, width):
    """A block table, of blocks of one position, for sequences that are all in this step: a cell for each row."""
    starts, token_positions = get_i64(seq_starts), get_i64(positions)
    n_seqs = get_i64(n_seqs)
    for seq in range(part_start(n_seqs, thread, n_threads), part_start(n_seqs, thread + 1, n_threads)):
        for token in range(get_i32(starts + 4 * seq), get_i32(starts + 4 * seq + 4)):
            position = np.int64(get_i32(token_positions + 4 * token))
            put_i32(table + 4 * (seq * width + position), np.int32(token))
