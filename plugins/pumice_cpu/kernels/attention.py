"""Flash attention over the paged cache, in one pass: a running maximum and sum for each query (Dao et al. 2022,
arXiv:2205.14135).

The queries of a sequence that read one key head are rows: row ``i`` is head ``i % group`` of that key head's group
at token ``i // group``. A thread takes up to ROWS of them, decodes CHUNK positions of the cache at a time, and goes
over these with a few rows in registers: scores (lanes are positions), weights, then values (lanes are columns).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pumice_cpu.isa import current
from pumice_cpu.kernels.attention_parts import SEEN, Bias, Shape, first_seen, layout_at, part_finder
from pumice_cpu.kernels.common import inline, load_up_to, next_part, part_start, store_up_to, transpose
from pumice_cpu.kernels.elementwise import log_beyond_one, tanh
from pumice_cpu.kernels.kv_cache import tile_reader
from pumice_cpu.kv_cache import CHUNK, PART, ROWS, scratch_at
from pumice_cpu.simd import (
    between,
    bits_f32,
    f32_bits,
    fma,
    get_f32,
    get_i32,
    get_i64,
    lane,
    load_f32,
    max_lanes,
    maximum,
    power_of_two,
    put_f32,
    put_i32,
    put_i64,
    registers_f32,
    splat_f32,
    store_f32,
    sum_lanes,
)

WIDTH = 2 if current().tokens > 4 else 1  # vectors of positions, or of columns, beside the rows in registers
LOWEST = np.float32(-1e38)  # below any score, but finite, so that differences are numbers
LOG2_E = np.float32(1.4426950408889634)  # scores are kept times this: weights are powers of two


@inline
def zero():
    return splat_f32(np.float32(0))


@inline
def transpose_stored(source, y, registers, spare):
    """16 vectors to what are their columns. ``y`` is as ``source``, 64 bytes apart."""
    for i in range(16):
        registers[i] = load_f32(source + 64 * i)
    transpose(registers, spare)
    for i in range(16):
        store_f32(y + 64 * i, registers[i])


@inline
def sink_of(sinks, head):
    """Maximum and sum of weights of what a head attends to before any position; ``sinks`` is 0 without them."""
    return (get_f32(sinks + 4 * head) * LOG2_E, np.float32(1)) if sinks != 0 else (LOWEST, np.float32(0))


@inline
def merge_factors(before, top):
    """The maximum of two, and what sums and outputs relative to each are to be multiplied by."""
    highest = top if top > before else before
    return highest, power_of_two(splat_f32(before - highest)), power_of_two(splat_f32(top - highest))


@inline
def log_of_sum(highest, total):
    """The natural logarithm of ``total`` times two to the power of ``highest``; ``total`` is a normal float."""
    bits = f32_bits(total)
    beyond_one = bits_f32((bits & np.int32(0x7FFFFF)) | np.int32(0x3F800000)) - np.float32(1)
    power = (highest + np.float32((bits >> np.int32(23)) - np.int32(127))) / LOG2_E
    return lane(log_beyond_one(splat_f32(beyond_one), splat_f32(power)), 0)


def attend(kv_type: str, n_rows: str, cells: str, scores: str, mask: str) -> Any:
    """A kernel that attends with every query of the batch, ``n_rows`` at a time in registers.

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

    ``at_once`` is ``n_rows``: a number that LLVM does not know, where loops are not to be unrolled. ``keys`` and
    ``values`` are addresses of a ``CellLayout``; where that of the values is zeros, they are the first ``v_dim`` of the
    keys. ``scratch`` has room for each thread
    (``kv_cache.scratch_at``).
    """
    read_tile, rows, width, is_capped = tile_reader(kv_type, cells), int(n_rows), WIDTH, "capped" in scores
    n_total, span, weight_stride = rows * width, 16 * WIDTH, 4 * (CHUNK + 16)
    layout, is_chosen = inline(scratch_at), "chosen" in scores
    is_biased = is_chosen or "biased" in scores
    (first_of, end_of), part_of = SEEN[mask], part_finder(mask)

    @inline
    def add_scores(query, stride, keys, key_stride, k_dim, weights, total, vectors):
        """Products of the rows at ``query`` with 16 * width positions."""
        for i in range(n_total):
            total[i] = zero()
        for column in range(k_dim):
            for w in range(width):
                vectors[w] = load_f32(keys + 64 * column + w * key_stride)
            for r in range(rows):
                x = splat_f32(get_f32(query + stride * r + 4 * column))
                for w in range(width):
                    total[r * width + w] = fma(x, vectors[w], total[r * width + w])
        for r in range(rows):
            for w in range(width):
                store_f32(weights + weight_stride * r + 64 * w, total[r * width + w])

    @inline
    def finish_scores(weights, begin, end, masked, first, last, cap, bias):
        """The largest of a row's scores, of which those from ``first`` to ``last`` count."""
        top = splat_f32(LOWEST)
        for i in range(begin, end, 16):
            x = load_f32(weights + 4 * i)
            if is_capped:
                x = cap * tanh(x)
            if is_biased:
                x = x + load_f32(bias + 4 * i)
            if masked:
                x = between(x, np.int32(first - i), np.int32(last - i), splat_f32(LOWEST))
            if masked or is_capped or is_biased:
                store_f32(weights + 4 * i, x)
            top = maximum(top, x)
        return max_lanes(top)

    @inline
    def weigh(weights, begin, end, masked, first, last, highest):
        """Turn a row's scores into weights relative to the highest; their sum, in 16 lanes."""
        total = zero()
        for i in range(begin, end, 16):
            x = power_of_two(load_f32(weights + 4 * i) - highest)
            if masked:
                x = between(x, np.int32(first - i), np.int32(last - i), zero())
            store_f32(weights + 4 * i, x)
            total = total + x
        return total

    @inline
    def add_values(weights, begin, end, values, stride, v_width, outputs, shrinks, total, vectors):
        """Shrink the rows' outputs, and add the values at positions of the chunk, weighed."""
        for v in range(0, v_width // 16, width):
            for r in range(rows):
                shrink = splat_f32(get_f32(shrinks + 4 * r))
                for w in range(width):
                    total[r * width + w] = load_f32(outputs + 64 * ((v + w) * rows + r)) * shrink
            for i in range(begin, end):
                for w in range(width):
                    vectors[w] = load_f32(values + stride * (v + w) + 64 * i)
                for r in range(rows):
                    x = splat_f32(get_f32(weights + weight_stride * r + 4 * i))
                    for w in range(width):
                        total[r * width + w] = fma(x, vectors[w], total[r * width + w])
            for r in range(rows):
                for w in range(width):
                    store_f32(outputs + 64 * ((v + w) * rows + r), total[r * width + w])

    @inline
    def prepare(shape, part, at, q, sinks, factor):
        """Scaled queries, filled up with the last to whole ``n_rows``, of which only sinks have been attended to."""
        padded = (part.n + rows - 1) // rows * rows
        for r in range(padded):
            row = part.row0 + r if r < part.n else part.row0 + part.n - 1
            query_head = part.head * shape.group + row % shape.group
            source = q + 4 * shape.k_dim * ((part.token + row // shape.group) * shape.n_head + query_head)
            for i in range(0, shape.k_dim, 16):
                to = at.queries + 4 * (r * shape.k_width + i)
                store_f32(to, load_up_to(source + 4 * i, shape.k_dim - i) * factor)
            put_i64(at.places + 8 * r, part.past + row // shape.group)
            top, total = sink_of(sinks, query_head)
            put_f32(at.merged_maxima + 4 * r, top)
            put_f32(at.merged_sums + 4 * r, total)
        for i in range(padded * shape.v_width // 16):
            store_f32(at.merged + 64 * i, zero())

    @inline
    def begin_part(shape, part, at):
        """Nothing attended to yet in PART positions."""
        padded = (part.n + rows - 1) // rows * rows
        for r in range(padded):
            put_f32(at.maxima + 64 * (r // rows) + 4 * (r % rows), LOWEST)
            store_f32(at.sums + 64 * r, zero())
        for i in range(padded * shape.v_width // 16):
            store_f32(at.outputs + 64 * i, zero())

    @inline
    def end_part(shape, part, at):
        """Add what was attended to in PART positions to what was before."""
        for r in range(part.n):
            place = 4 * (r // rows) * rows * shape.v_width + 64 * (r % rows)
            top, before = get_f32(at.maxima + 64 * (r // rows) + 4 * (r % rows)), get_f32(at.merged_maxima + 4 * r)
            highest, shrink, factor = merge_factors(before, top)
            put_f32(at.merged_maxima + 4 * r, highest)
            total = splat_f32(sum_lanes(load_f32(at.sums + 64 * r)))
            total = fma(total, factor, splat_f32(get_f32(at.merged_sums + 4 * r)) * shrink)
            put_f32(at.merged_sums + 4 * r, lane(total, 0))
            for v in range(shape.v_width // 16):
                to = place + 64 * rows * v
                added = fma(load_f32(at.outputs + to), factor, load_f32(at.merged + to) * shrink)
                store_f32(at.merged + to, added)

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

    @inline
    def attend_rows(shape, part, at, r0, chunk, chunk_end, capping, bias, total, vectors):
        """Rows from ``r0`` on attend to the decoded positions ``chunk`` to ``chunk + chunk_end``."""
        shrinks = at.weights + 4 * CHUNK  # beside the first row's weights
        window, length = shape.window, part.length
        here = part.n - r0 if part.n - r0 < shape.at_once else shape.at_once
        low = get_i64(at.places + 8 * r0)  # the first position of these rows
        high = get_i64(at.places + 8 * (r0 + here - 1))
        begin = part.first - chunk if part.first > chunk else np.int64(0)
        begin = first_of(low, window, length) - chunk if first_of(low, window, length) - chunk > begin else begin
        to = end_of(high, window, length) - chunk
        to = to if to < chunk_end else chunk_end
        if begin < to:
            from_span, to_span = begin // span * span, (to + span - 1) // span * span
            for i in range(from_span, to_span, span):
                query, key = at.queries + 4 * shape.k_width * r0, at.keys + 4 * i * shape.k_dim
                add_scores(
                    query, 4 * shape.k_width, key, 64 * shape.k_dim, shape.k_dim, at.weights + 4 * i, total, vectors
                )  # fmt: skip
            masked = to_span > to or to_span > end_of(low, window, length) - chunk
            masked = masked or from_span < begin or first_of(high, window, length) - chunk > from_span
            highest_place = at.maxima + 64 * (r0 // rows)
            for r in range(here):
                position = get_i64(at.places + 8 * (r0 + r))
                first, last = first_of(position, window, length) - chunk, end_of(position, window, length) - chunk
                row = part.row0 + r0 + r
                query_head = part.head * shape.group + row % shape.group
                added = query_head * bias.stride + bias.zero + chunk - position
                if is_chosen:
                    added = (part.token + row // shape.group) * bias.stride + chunk
                top = finish_scores(
                    at.weights + weight_stride * r, from_span, to_span, masked,
                    first if first > begin else begin, last if last < to else to, capping,
                    bias.table + 4 * added,
                )  # fmt: skip
                put_f32(shrinks + 4 * r, top)
            highest = maximum(load_f32(highest_place), load_f32(shrinks))
            store_f32(shrinks, power_of_two(load_f32(highest_place) - highest))
            store_f32(highest_place, highest)
            for r in range(here):
                position = get_i64(at.places + 8 * (r0 + r))
                first, last = first_of(position, window, length) - chunk, end_of(position, window, length) - chunk
                added = weigh(
                    at.weights + weight_stride * r, from_span, to_span, masked,
                    first if first > begin else begin, last if last < to else to,
                    splat_f32(get_f32(highest_place + 4 * r)),
                )  # fmt: skip
                place = at.sums + 64 * (r0 + r)
                store_f32(place, fma(load_f32(place), splat_f32(get_f32(shrinks + 4 * r)), added))
            add_values(
                at.weights, begin, to, at.values, 64 * CHUNK, shape.v_width,
                at.outputs + 4 * r0 * shape.v_width, shrinks, total, vectors,
            )  # fmt: skip

    @inline
    def finish(shape, part, at, y, partial, log_sum):
        """Divide the outputs by the sums of weights; or leave both, and the maxima, to ``merge``."""
        for r in range(part.n):
            row = part.row0 + r
            query_head = part.head * shape.group + row % shape.group
            source = 4 * (r // rows) * rows * shape.v_width + 64 * (r % rows)
            if partial != 0:
                source += at.outputs
                place = partial + 4 * (part.number * shape.n_head + query_head) * (shape.v_width + 16)
                put_f32(place, sum_lanes(load_f32(at.sums + 64 * r)))
                put_f32(place + 4, get_f32(at.maxima + 64 * (r // rows) + 4 * (r % rows)))
                for v in range(shape.v_width // 16):
                    store_f32(place + 64 * v + 64, load_f32(source + 64 * rows * v))
            else:
                source += at.merged
                token = part.token + row // shape.group
                place = y + 4 * (shape.v_dim + log_sum) * (token * shape.n_head + query_head)
                inverse = splat_f32(np.float32(1) / get_f32(at.merged_sums + 4 * r))
                for v in range((shape.v_dim + 15) // 16):
                    store_up_to(place + 64 * v, load_f32(source + 64 * rows * v) * inverse, shape.v_dim - 16 * v)
                if log_sum:
                    total = get_f32(at.merged_sums + 4 * r)
                    put_f32(place + 4 * shape.v_dim, log_of_sum(get_f32(at.merged_maxima + 4 * r), total))

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


def merge(thread, n_threads, positions, y, sinks, n_head, window, part_size, partial, v_dim, v_width, log_sum):
    """What parts of the positions left for the one token of a step, merged in their order as ``attend`` does."""
    past = np.int64(get_i32(get_i64(positions)))
    n_parts = past // part_size - first_seen(past, window, past + 1) // part_size + 1
    stride = 4 * n_head * (v_width + 16)
    for head in range(part_start(n_head, thread, n_threads), part_start(n_head, thread + 1, n_threads)):
        source = partial + 4 * head * (v_width + 16)
        for v in range((v_dim + 15) // 16):
            highest, one = sink_of(sinks, head)
            total, added = splat_f32(one), zero()
            for part in range(n_parts):
                place = source + stride * part
                highest, shrink, factor = merge_factors(highest, get_f32(place + 4))
                total = fma(splat_f32(get_f32(place)), factor, total * shrink)
                added = fma(load_f32(place + 64 * v + 64), factor, added * shrink)
            inverse = splat_f32(np.float32(1) / lane(total, 0))
            store_up_to(y + 4 * (head * (v_dim + log_sum) + 16 * v), added * inverse, v_dim - 16 * v)
            if log_sum:
                put_f32(y + 4 * (head * (v_dim + 1) + v_dim), log_of_sum(highest, lane(total, 0)))


def number_rows(thread, n_threads, n_seqs, seq_starts, positions, table, width):
    """A block table, of blocks of one position, for sequences that are all in this step: a cell for each row."""
    starts, token_positions = get_i64(seq_starts), get_i64(positions)
    n_seqs = get_i64(n_seqs)
    for seq in range(part_start(n_seqs, thread, n_threads), part_start(n_seqs, thread + 1, n_threads)):
        for token in range(get_i32(starts + 4 * seq), get_i32(starts + 4 * seq + 4)):
            position = np.int64(get_i32(token_positions + 4 * token))
            put_i32(table + 4 * (seq * width + position), np.int32(token))
