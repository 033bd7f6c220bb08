"""Block tables: what is held, shared, slid out of a window and given back, under any order of events."""

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


def test_the_partial_block_with_the_longest_common_prefix_is_taken():
    cache = KVCache(limits({0: 16}))
    held = [fill(cache, [1, 2, 3, 4, *end])[0] for end in ([5], [5, 6, 7], [5, 6, 8])]
    for tables, end in zip(held, ([5], [5, 6, 7], [5, 6, 8]), strict=True):
        cache.release(tables, [1, 2, 3, 4, *end])
    assert [cache.begin([1, 2, 3, 4, *end, 9])[1] for end in ([5, 6, 8], [5, 6, 8], [5], [5])] == [7, 6, 5, 4]


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
