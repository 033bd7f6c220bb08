"""How layers are shared out over memory."""

from pathlib import Path

import numpy as np

from graphs import builder, limits
from pumice_vulkan.split import LAYOUT_FACTOR, RESERVE, layer_bytes, layers_that_fit


def test_a_tied_table_counts_where_it_is_used(tmp_path: Path) -> None:
    g = builder(tmp_path, {"w": np.ones((10, 4), "f4")}, n_layer=3)
    x = g.embedding(g.weight("w"), g.tokens)
    with g.layer(2):
        x = g.linear(x, g.weight("w"))
    nodes, size = g.finish(x).nodes, int(160 * LAYOUT_FACTOR)
    assert layer_bytes(nodes, limits()) == {0: 0, 2: size}
    assert layer_bytes(nodes, limits(), several=True) == {0: size, 2: size}


def test_the_last_layers_fit_first() -> None:
    sizes = {0: 500, 1: 100, 2: 100, 3: 300}
    assert layers_that_fit(sizes, [RESERVE + 1000]) == 4
    assert layers_that_fit(sizes, [RESERVE + 999]) == 3
    assert layers_that_fit(sizes, [RESERVE + 399]) == 1
    assert layers_that_fit(sizes, [RESERVE + 299]) == 0
    assert layers_that_fit(sizes, [0]) == 0


def test_no_layer_lies_on_two_devices() -> None:
    sizes = {0: 500, 1: 100, 2: 100, 3: 300}
    assert layers_that_fit(sizes, [RESERVE + 500, RESERVE + 500]) == 4
    assert layers_that_fit(sizes, [RESERVE + 499, RESERVE + 500]) == 3
    assert layers_that_fit(sizes, [RESERVE + 700, RESERVE + 300]) == 4
