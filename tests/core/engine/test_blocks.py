"""Block tables: what is held, shared, slid out of a window and given back, under any order of events."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pumice.backend.step import Limits
from pumice.engine.cache.kv_cache import KVCache

SIZE = 4


def limits(n_blocks, n_ctx=64):
    return Limits(n_ctx, n_batch=16, n_outputs=1, n_seqs=4, block_size=SIZE, n_blocks=n_blocks, kv_type="f16")


def fill(cache, tokens, n_new=None):
    tables, n_past = cache.begin(tokens)
    assert cache.extend(tables, n_past, len(tokens) - n_past)
    cache.publish(tables, tokens, len(tokens))
    return tables, n_past


def test_equal_prefixes_share_blocks_and_leave_a_token_to_compute():
    cache = KVCache(limits({0: 16}))
    tokens = list(range(12))
    first, n_past = fill(cache, tokens)
    assert n_past == 0
    second, n_past = fill(cache, tokens)
    assert n_past == 8  # two blocks of three: the last token must be computed for its logits
    assert (first.tables[0][:2] == second.tables[0][:2]).all()
    assert first.tables[0][2] != second.tables[0][2]
    third, n_past = fill(cache, [*range(4), 99, *range(5, 12)])
    assert n_past == 4
    assert first.tables[0][0] == third.tables[0][0]


def test_a_prefix_outlives_its_sequence_until_the_memory_is_needed():
    cache = KVCache(limits({0: 4}))
    tables, _ = fill(cache, list(range(9)))
    cache.release(tables)
    again, n_past = cache.begin(list(range(9)))
    assert n_past == 8
    cache.release(again)
    other, _ = fill(cache, list(range(50, 66)))  # takes all four blocks
    cache.release(other)
    assert cache.begin(list(range(9)))[1] == 0


def test_a_window_gives_blocks_back_as_they_slide_out():
    cache = KVCache(limits({0: 16, 6: 3}))
    tables, _ = cache.begin(list(range(60)))
    for n_past in range(60):
        assert cache.extend(tables, n_past, 1), n_past
        oldest_needed = max(0, n_past - 5)
        held = tables.tables[6][oldest_needed // SIZE : n_past // SIZE + 1]
        assert (held >= 0).all()
        assert (tables.tables[6] >= 0).sum() <= 3


def test_a_prefix_is_shared_only_if_its_windows_are_still_there():
    cache = KVCache(limits({0: 32, 6: 12}))
    tokens = list(range(40))
    tables, _ = cache.begin(tokens)
    for n_past in range(0, 40, SIZE):
        assert cache.extend(tables, n_past, SIZE)
        cache.publish(tables, tokens, n_past + SIZE)
    shared, n_past = cache.begin(tokens)
    assert n_past == 36
    assert (shared.tables[6][:7] == -1).all()
    assert (shared.tables[6][7:9] >= 0).all()


def test_refusing_an_extension_changes_nothing():
    cache = KVCache(limits({0: 4}))
    tables, _ = cache.begin([1])
    assert cache.extend(tables, 0, 8)
    before = tables.tables[0].copy()
    assert not cache.extend(tables, 8, 16)
    assert (tables.tables[0] == before).all()


def test_a_last_block_is_taken_over_to_the_token():
    cache = KVCache(limits({0: 16, 6: 8}))
    tables, _ = fill(cache, list(range(10)))
    cache.release(tables, list(range(10)))
    assert cache.begin([*range(10), 10, 11], b"other salt")[1] == 0
    again, n_past = cache.begin([*range(9), 99, 100])
    assert n_past == 9
    assert cache.begin([*range(9), 99, 100])[1] == 8, "it has one owner"
    cache.release(again, [*range(9), 99])
    assert cache.begin([*range(9), 99])[1] == 9, "the last token must be computed for its logits"


def test_the_partial_block_with_the_longest_common_prefix_is_taken():
    cache = KVCache(limits({0: 16}))
    held = [fill(cache, [1, 2, 3, 4, *end])[0] for end in ([5], [5, 6, 7], [5, 6, 8])]
    for tables, end in zip(held, ([5], [5, 6, 7], [5, 6, 8]), strict=True):
        cache.release(tables, [1, 2, 3, 4, *end])
    assert [cache.begin([1, 2, 3, 4, *end, 9])[1] for end in ([5, 6, 8], [5, 6, 8], [5], [5])] == [7, 6, 5, 4]


def test_remembered_blocks_are_bounded():
    cache = KVCache(limits({0: 4}))
    for first in range(1000):
        tokens = [first, 1, 2, 3, 4, 5]
        tables, _ = fill(cache, tokens)
        cache.release(tables, tokens)
    assert len(cache._tails) < 100


def test_salts_keep_prefixes_apart():
    cache = KVCache(limits({0: 16}))
    tables, _ = cache.begin(list(range(10)), b"a")
    assert cache.extend(tables, 0, 10)
    cache.publish(tables, list(range(10)), 10)
    assert [cache.begin(list(range(10)), salt)[1] for salt in (b"a", b"b", b"")] == [8, 0, 0]


class CacheMachine(RuleBasedStateMachine):
    """Sequences come, grow and go; every block is empty, idle, or held exactly as often as tables name it."""

    def __init__(self):
        super().__init__()
        self.cache = KVCache(limits({0: 12, 6: 8}))
        self.sequences = []
        self.cells = {}  # (window, block, cell) -> the tokens up to the one whose key lies there

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=40))
    def begin(self, tokens):
        tables, n_past = self.cache.begin(tokens)
        assert n_past < len(tokens)
        self.sequences.append([tokens, tables, n_past])

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def grow(self, data):
        sequence = data.draw(st.sampled_from(self.sequences))
        tokens, tables, n_past = sequence
        n_new = data.draw(st.integers(0, min(16, len(tokens) - n_past)))
        if n_new and self.cache.extend(tables, n_past, n_new):
            sequence[2] += n_new
            for window, table in tables.tables.items():
                for p in range(n_past, n_past + n_new):
                    self.cells[window, int(table[p // SIZE]), p % SIZE] = tokens[: p + 1]
            self.cache.publish(tables, tokens, sequence[2])

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def release(self, data):
        sequence = data.draw(st.sampled_from(self.sequences))
        self.sequences.remove(sequence)
        tokens, tables, n_past = sequence
        self.cache.release(tables, tokens[:n_past])

    @invariant()
    def blocks_add_up(self):
        for window, pool in self.cache._pools.items():
            held = [b for _, tables, _ in self.sequences for b in tables.tables[window].tolist() if b >= 0]
            assert len(set(held)) + pool.available == len(pool._holders)
            for block, holders in enumerate(pool._holders):
                assert holders == held.count(block)

    @invariant()
    def what_can_be_attended_to_is_there(self):
        for tokens, tables, n_past in self.sequences:
            for window, table in tables.tables.items():
                for p in range(max(0, n_past - window + 1) if window else 0, n_past):
                    assert self.cells[window, int(table[p // SIZE]), p % SIZE] == tokens[: p + 1]


CacheMachine.TestCase.settings = settings(max_examples=60, deadline=None, stateful_step_count=30)
test_any_order_of_events = CacheMachine.TestCase


@pytest.mark.parametrize("share", [True, False])
def test_sharing_can_be_turned_off(share):
    cache = KVCache(limits({0: 16}), share_prefixes=share)
    fill(cache, list(range(9)))
    assert cache.begin(list(range(9)))[1] == (8 if share else 0)
