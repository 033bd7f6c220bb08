"""Blocks and slots leave a device's caches as bytes, and come back to other places."""

from typing import Any

import numpy as np
import pytest

from pumice.plugin.unstable import KVState, Limits, RecurrentState
from pumice_vulkan import cache_moves
from pumice_vulkan.cache_moves import SLOTS, CacheMoves
from pumice_vulkan.device import Device
from pumice_vulkan.kv_cache import CacheLayout
from pumice_vulkan.memory import Arena


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_rows_come_back_elsewhere_and_touch_nothing_else(device: Device, monkeypatch: Any, kv_type: str) -> None:
    monkeypatch.setattr(cache_moves, "STAGING_BYTES", 1)  # a row at a time
    limits = Limits(128, 32, 1, 2, 32, {0: 4, 64: 3}, kv_type, n_checkpoints=1)
    attention = [KVState("a", 2, 16, 16), KVState("b", 2, 32, 0), KVState("c", 2, 16, 16, window=64)]
    recurrent = RecurrentState("r", (4, 6))
    arena, places = Arena(device, 1 << 20), {}
    for state in attention:
        layout = CacheLayout.of(state, limits)
        places[state] = layout, arena.take(4 * layout.words)
    places[recurrent] = arena.take(4 * limits.n_slots * 24)
    moves = CacheMoves(device, [*attention, recurrent], places, limits, "test")
    n_rows = {0: 4, 64: 3, SLOTS: limits.n_slots}
    sizes = {**moves.form.block_bytes, SLOTS: moves.form.slot_bytes}
    assert sizes[SLOTS] == 4 * 24
    assert sizes[0] * 4 == 4 * sum(places[state][0].words for state in attention[:2])
    rng = np.random.default_rng(1)
    wanted = {key: rng.integers(0, 256, (n, sizes[key]), np.uint8) for key, n in n_rows.items()}
    for key, rows in wanted.items():
        moves.write(key, range(len(rows)), rows)
    for key, rows in wanted.items():
        moves.write(key, [2, 0], moves.read(key, [0, 1]))
        rows[[2, 0]] = rows[[0, 1]]
    for key, rows in wanted.items():
        assert np.array_equal(moves.read(key, range(len(rows))), rows)
    moves.close()
    arena.close()
