"""Which layers go where: by what was asked for, and by memory."""

import logging
from pathlib import Path

import numpy as np
import pytest

from graphs import builder, limits
from pumice.engine.placement import layer_bytes, layers_that_fit, place_layers, share_layers
from pumice.graph import Graph, Weight
from pumice.plugin import Backend
from pumice_numpy import NumpyBackend

N_LAYER = 4
MATRIX = 256  # bytes of a layer's matrix


def layered_graph(folder: Path) -> Graph:
    g = builder(folder, {"w": np.ones((8, 8), "f4"), **{f"w{i}": np.ones((8, 8), "f4") for i in range(4)}}, N_LAYER)
    x = g.embedding(g.weight("w"), g.tokens)
    for index in range(N_LAYER):
        with g.layer(index):
            x = x + g.silu(g.linear(x, g.weight(f"w{index}")))
    return g.finish(g.linear(g.get_rows(x, g.output_ids), g.weight("w")))


def gpu(*free: int | None) -> Backend:
    methods = {"offload": True, "free_memory": lambda self: list(free or [None])}
    backend: Backend = type("GPU", (NumpyBackend,), methods)()
    return backend


def placed(graph: Graph, *backends: Backend, n_gpu_layers: int = -1) -> list[tuple[str, int, list[int]]]:
    """Backend, device and layers of each segment."""
    line = [("gpu" if backend.offload else "cpu", backend) for backend in backends]
    (segments,) = place_layers([graph], line, limits(), n_gpu_layers)
    return [(s.backend, s.device, sorted({max(node.layer, 0) for node in s.nodes})) for s in segments]


@pytest.mark.parametrize(("n_gpu_layers", "on_gpu"), [(0, 0), (1, 1), (2, 2), (4, 4), (5, 5), (99, 5), (-1, 5)])
def test_a_gpu_gets_the_last_layers_and_what_follows_them_counts_as_one(
    tmp_path: Path, n_gpu_layers: int, on_gpu: int
) -> None:
    found = placed(layered_graph(tmp_path), gpu(), NumpyBackend(), n_gpu_layers=n_gpu_layers)
    on_cpu = N_LAYER + 1 - on_gpu
    expected = [("cpu", 0, list(range(on_cpu))), ("gpu", 0, list(range(on_cpu, N_LAYER + 1)))]
    assert found == [part for part in expected if part[2]]


def test_layers_without_memory_go_to_the_next_backend(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = placed(layered_graph(tmp_path), gpu(3 * MATRIX), NumpyBackend())
    assert found == [("cpu", 0, [0, 1]), ("gpu", 0, [2, 3, 4])]
    assert caplog.messages == ["gpu: memory for 3 of 5 layers; the others run on cpu"]


def test_several_devices_of_a_backend_share_its_layers(tmp_path: Path) -> None:
    graph = layered_graph(tmp_path)
    assert placed(graph, gpu(9000, 9000)) == [("gpu", 0, [0, 1]), ("gpu", 1, [2, 3, 4])]
    assert placed(graph, gpu(None, None)) == [("gpu", 0, [0, 1]), ("gpu", 1, [2, 3, 4])]
    shared = placed(graph, gpu(9000, 9000), NumpyBackend(), n_gpu_layers=2)
    assert shared == [("cpu", 0, [0, 1, 2]), ("gpu", 0, [3]), ("gpu", 1, [4])]
    assert placed(graph, gpu(9000, 1)) == [("gpu", 0, [0, 1, 2, 3, 4])]


def test_a_device_is_not_asked_where_nothing_is_to_run_on_it(tmp_path: Path) -> None:
    def fail(self: Backend) -> list[int]:
        raise AssertionError

    backend: Backend = type("GPU", (NumpyBackend,), {"offload": True, "free_memory": fail})()
    assert placed(layered_graph(tmp_path), backend, NumpyBackend(), n_gpu_layers=0) == [("cpu", 0, [0, 1, 2, 3, 4])]


def test_a_tied_table_counts_where_it_is_used(tmp_path: Path) -> None:
    g = builder(tmp_path, {"w": np.ones((10, 4), "f4")}, n_layer=3)
    x = g.embedding(g.weight("w"), g.tokens)
    with g.layer(2):
        x = g.linear(x, g.weight("w"))
    nodes = g.finish(x).nodes
    sizes = layer_bytes(nodes, lambda held: held.data.nbytes if isinstance(held, Weight) else 0, several=False)
    assert {layer: size for layer, size in sizes.items() if size} == {2: 160}
    sizes = layer_bytes(nodes, lambda held: held.data.nbytes if isinstance(held, Weight) else 0, several=True)
    assert sizes == {0: 160, 2: 160}


def test_states_count_to_their_layers(tmp_path: Path) -> None:
    g = builder(tmp_path, {"w": np.ones((10, 8), "f4")})
    x = g.embedding(g.weight("w"), g.tokens).reshape("n_tokens", 1, 8)
    with g.layer(0):
        x = g.attention(x, x, x, scale=1.0)
    backend, most = NumpyBackend(), limits(kv_type="f16")
    sizes = layer_bytes(g.finish(x).nodes, lambda held: backend.footprint(held, most), several=False)
    assert sizes == {0: 320 + 2 * 2 * 8 * most.n_blocks[0] * most.block_size}


def test_the_last_layers_fit_first() -> None:
    sizes = {0: 500, 1: 100, 2: 100, 3: 300}
    assert [layers_that_fit(sizes, [free]) for free in (None, 1000, 999, 399, 299, 0)] == [4, 4, 3, 1, 0, 0]


def test_no_layer_lies_on_two_devices() -> None:
    sizes = {0: 500, 1: 100, 2: 100, 3: 300}
    assert layers_that_fit(sizes, [500, 500]) == 4
    assert layers_that_fit(sizes, [499, 500]) == 3
    assert layers_that_fit(sizes, [700, 300]) == 4


def test_layers_are_shared_in_proportion_to_memory_as_far_as_they_fit() -> None:
    sizes = dict.fromkeys(range(8), 100)
    assert list(share_layers(sizes, [9000, 3000]).values()) == [0] * 6 + [1] * 2
    assert list(share_layers(sizes, [1000, 1000, 2000]).values()) == [0, 0, 1, 1, 2, 2, 2, 2]
    assert list(share_layers({**sizes, 0: 350}, [546, 600]).values()) == [0, 0, 1, 1, 1, 1, 1, 1]
