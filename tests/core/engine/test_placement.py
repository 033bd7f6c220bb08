"""Which layers go where: by what was asked for, and by memory."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from graphs import batch, builder, limits
from pumice.adapters import AdaptedGraphs
from pumice.config import load_config
from pumice.engine.placement.backends import choose_gpus
from pumice.engine.placement.fitting import largest_context
from pumice.engine.placement.overrides import host_layers, parse_overrides
from pumice.engine.placement.placement import PlacementRules, place_layers, place_like, share_layers
from pumice.engine.placement.runner import Runner
from pumice.engine.placement.sizing import EngineSizes, devices_in_use, make_limits
from pumice.errors import BackendError, ConfigError, PumiceError
from pumice.gguf import GGUFFile
from pumice.graph import Graph, Weight
from pumice.model_graphs import make_architecture
from pumice.plugin.unstable import Backend, DeviceInfo
from pumice.registry import get_registry
from pumice.tracing import trace
from pumice_numpy import NumpyBackend
from pumice_numpy.backend import NumpyOptions
from tiny_models import IDS, N_CTX
from tiny_zoo import ZOO

N_LAYER = 4
MATRIX = 256  # bytes of a layer's matrix
VALUES = 3 * 64 * 8 * 4 + 256  # bytes of a segment's activations: three arrays of 64 rows, and their ids


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
    (segments,) = place_layers([graph], line, limits(), PlacementRules(n_gpu_layers))
    return [(s.backend, s.device, sorted({max(node.layer, 0) for node in s.nodes})) for s in segments]


@pytest.mark.parametrize(("n_gpu_layers", "on_gpu"), [(0, 0), (1, 1), (2, 2), (4, 4), (5, 5), (99, 5), (-1, 5)])
def test_a_gpu_gets_the_last_layers_and_what_follows_counts_as_one(
    tmp_path: Path, n_gpu_layers: int, on_gpu: int
) -> None:
    found = placed(layered_graph(tmp_path), gpu(), NumpyBackend(), n_gpu_layers=n_gpu_layers)
    on_cpu = N_LAYER + 1 - on_gpu
    expected = [("cpu", 0, list(range(on_cpu))), ("gpu", 0, list(range(on_cpu, N_LAYER + 1)))]
    assert found == [part for part in expected if part[2]]


def test_layers_without_memory_go_to_the_next_backend(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = placed(layered_graph(tmp_path), gpu(3 * MATRIX + VALUES), NumpyBackend())
    assert found == [("cpu", 0, [0, 1]), ("gpu", 0, [2, 3, 4])]
    assert caplog.messages == ["gpu: memory for 3 of 5 layers; the others run on cpu"]


def test_several_devices_of_a_backend_share_its_layers(tmp_path: Path) -> None:
    graph = layered_graph(tmp_path)
    assert placed(graph, gpu(9000, 9000)) == [("gpu", 0, [0, 1]), ("gpu", 1, [2, 3, 4])]
    assert placed(graph, gpu(None, None)) == [("gpu", 0, [0, 1]), ("gpu", 1, [2, 3, 4])]
    shared = placed(graph, gpu(9000, 9000), NumpyBackend(), n_gpu_layers=2)
    assert shared == [("cpu", 0, [0, 1, 2]), ("gpu", 0, [3]), ("gpu", 1, [4])]
    assert placed(graph, gpu(9000, 1)) == [("gpu", 0, [0, 1, 2, 3, 4])]


@pytest.mark.parametrize("free", [None, 10_000])  # the bytes of layers are counted where memory is limited
def test_a_cache_type_that_cannot_hold_a_row_is_refused_with_the_row(tmp_path: Path, free: int | None) -> None:
    g = builder(tmp_path, {"w": np.ones((10, 8), "f4")})
    x = g.embedding(g.weight("w"), g.tokens).reshape("n_tokens", 1, 8)
    with g.layer(0):
        graph = g.finish(g.attention(x, x, x, scale=1.0))
    line = [("gpu", gpu(free)), ("cpu", NumpyBackend())]
    with pytest.raises(BackendError, match=r"kv_type q8_0 needs rows of whole blocks, kv\.0 has 1 heads of 8 and 8"):
        place_layers([graph], line, limits(kv_type="q8_0"), PlacementRules())


def test_layers_are_shared_in_proportion_to_memory_as_far_as_they_fit() -> None:
    sizes = dict.fromkeys(range(8), 100)
    assert list(share_layers(sizes, [9000, 3000]).values()) == [0] * 6 + [1] * 2
    assert list(share_layers(sizes, [1000, 1000, 2000]).values()) == [0, 0, 1, 1, 2, 2, 2, 2]
    assert list(share_layers({**sizes, 0: 350}, [546, 600]).values()) == [0, 0, 1, 1, 1, 1, 1, 1]


def test_a_variant_of_a_graph_stays_on_its_devices_where_two_use_one_matrix(tmp_path: Path) -> None:
    graph, line = layered_graph(tmp_path), [("gpu", gpu()), ("cpu", NumpyBackend())]
    (segments,) = place_layers([graph], line, limits(), PlacementRules(1))
    variant = place_like(graph, segments, line, limits())
    assert [(s.backend, s.nodes) for s in variant] == [(s.backend, s.nodes) for s in segments]


ROUTED = ZOO["qwen3moe"]


def logits_of(path: Path, backends: Sequence[tuple[str, Backend]], rules: PlacementRules) -> tuple[Runner, np.ndarray]:
    """The runner of a model, and its logits for a prompt of eight tokens and for one token more."""
    with GGUFFile.open(path) as file:
        graphs = trace(file, make_architecture(file, get_registry(load_config())), 64)
        runner = Runner(AdaptedGraphs(graphs), backends, make_limits(graphs, EngineSizes(64, 16, 2, "f32")), rules)
        runner.compile()
        parts = []
        for n_tokens, n_past in ((8, 0), (1, 8)):
            step = batch([n_tokens], [n_past])
            step.tokens[:] = IDS[n_past : n_past + n_tokens]
            step.block_tables = {0: np.arange(2, dtype=np.int32)[None]}
            parts.append(runner.outputs(step)["logits"].copy())
    return runner, np.concatenate(parts)


@pytest.mark.parametrize(
    "rules",
    [
        PlacementRules(overrides=tuple(host_layers(-1, 0))),
        PlacementRules(overrides=tuple(host_layers(1, 0))),
        PlacementRules(kv_offload=False),
        PlacementRules(overrides=tuple(parse_overrides([r"blk\.0\.attn_(q|k).*=CPU", "down_exps=gpu1"]))),
        PlacementRules(1, overrides=tuple(parse_overrides([r"blk\.0\.ffn.*=gpu0"]))),
    ],
    ids=["-cmoe", "-ncmoe 1", "-nkvo", "-ot two devices", "-ot to a GPU"],
)
def test_moved_tensors_give_the_same_logits(tmp_path: Path, rules: PlacementRules) -> None:
    path = ROUTED.write(tmp_path / "model.gguf")
    _, expected = logits_of(path, [("cpu", NumpyBackend())], PlacementRules())
    runner, found = logits_of(path, [("gpu", gpu(None, None)), ("cpu", NumpyBackend())], rules)
    assert np.array_equal(found, expected)
    for segment in runner.placed.main.segments:
        for node in segment.nodes:
            for weight in (tensor for tensor in node.operands() if isinstance(tensor, Weight)):
                override = next((item for item in rules.overrides if item.pattern.search(weight.name)), None)
                if override:
                    device = override.device
                    assert (segment.backend, segment.device) == (device.backend or "cpu", device.number)
            if not rules.kv_offload and node.state is not None:
                assert segment.backend == "cpu"


def test_memory_counts_weights_states_and_activations(tmp_path: Path) -> None:
    """As memory shrinks byte by byte, layers leave the GPU one after the other, and it never holds more than it has."""
    graph = layered_graph(tmp_path)
    before = 5
    for free in range(5 * MATRIX + VALUES, 0, -100):
        backend = gpu(free)
        placed = place_layers([graph], [("gpu", backend), ("cpu", NumpyBackend())], limits(), PlacementRules())
        uses = devices_in_use(placed, {"gpu": backend, "cpu": NumpyBackend()}, limits())
        used = uses["gpu", 0].n_bytes(backend, limits()) if ("gpu", 0) in uses else 0
        assert used <= free
        n_layers = len({max(n.layer, 0) for s in placed[0] if s.backend == "gpu" for n in s.nodes})
        assert n_layers <= before
        before = n_layers
    assert before == 0


def test_tensor_split_says_the_shares_of_devices(tmp_path: Path) -> None:
    graph = layered_graph(tmp_path)

    def split(*shares: float) -> list[tuple[int, list[int]]]:
        rules = PlacementRules(tensor_split=shares)
        (segments,) = place_layers([graph], [("gpu", gpu(None, None))], limits(), rules)
        return [(s.device, sorted({max(node.layer, 0) for node in s.nodes})) for s in segments]

    assert split(3, 2) == [(0, [0, 1, 2]), (1, [3, 4])]
    assert split(1) == split(1, 0) == [(0, [0, 1, 2, 3, 4])]
    with pytest.raises(BackendError, match="tensor_split has 3 shares, but gpu uses 2 devices"):
        split(1, 1, 1)


@pytest.mark.parametrize(
    ("text", "message"), [("exps", "REGEX=DEVICE"), ("exps=somewhere", "REGEX=DEVICE"), ("(=CPU", "regular expression")]
)
def test_wrong_overrides_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_overrides([text])


def test_a_device_that_is_not_in_use_is_refused(tmp_path: Path) -> None:
    rules = PlacementRules(overrides=tuple(parse_overrides(["w1=gpu4"])))
    with pytest.raises(BackendError, match="no device gpu4 is in use; devices in use: cpu, gpu0"):
        place_layers([layered_graph(tmp_path)], [("gpu", gpu(None)), ("cpu", NumpyBackend())], limits(), rules)


class SeveralGPUs(NumpyBackend):
    """A backend of three GPUs."""

    offload = True

    @dataclass
    class Options(NumpyOptions):
        devices: list[int] = field(default_factory=list)

    @classmethod
    def devices(cls) -> list[DeviceInfo]:
        return [DeviceInfo(f"GPU {i}", "gpu", 2**30) for i in range(3)]


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [
        ({}, None),
        ({"split_mode": "layer"}, [0, 1, 2]),
        ({"split_mode": "none", "main_gpu": 2}, [2]),
        ({"devices": ["Gpu2", "gpu:0"]}, [2, 0]),
        ({"devices": ["Gpu2", "gpu:0"], "split_mode": "none", "main_gpu": 1}, [0]),
    ],
)
def test_options_choose_gpus(settings: dict[str, object], chosen: list[int] | None) -> None:
    assert choose_gpus("gpu", SeveralGPUs, load_config(settings)).get("devices") == chosen


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"devices": ["gpu3"]}, "no device gpu3: gpu has 3 devices"),
        ({"devices": ["gpu1"], "split_mode": "none", "main_gpu": 1}, "main_gpu is 1, but the last chosen device is 0"),
        ({"devices": ["gpu0", "other1"]}, "belong to several backends"),
        ({"devices": ["gpu0", "Gpu:0"]}, "named twice"),
        ({"devices": ["None", "gpu0"]}, "^devices: 'none' stands alone, in 'None, gpu0'$"),
        ({"devices": ["big"]}, "'big' is not a device"),
    ],
)
def test_wrong_choices_of_gpus_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(PumiceError, match=message):
        choose_gpus("gpu", SeveralGPUs, load_config(settings))


def test_the_largest_context_that_fits(tmp_path: Path) -> None:
    graphs = {"main": layered_graph(tmp_path)}
    sizes = EngineSizes(1000, 16, 2, "f32")

    def largest(room: int, least: int = 64) -> int:
        return largest_context(graphs, sizes, least, lambda limits: limits.n_ctx <= room)

    assert [largest(room) for room in (2000, 1000, 999, 640, 639, 63, 0)] == [1000, 1000, 992, 640, 608, 64, 64]
    assert largest(0, 50) == 50
    assert largest(0, 4096) == 1000


def test_a_context_of_zero_is_lowered_to_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = ROUTED.write(tmp_path / "model.gguf")

    caplog.set_level(logging.INFO)

    def context(**options: Any) -> int:
        with pumice.load(path, backend="numpy", kv_type="f32", n_batch=8, **options) as model:
            return model.n_ctx

    assert context(n_ctx=0) == N_CTX
    monkeypatch.setattr("pumice.local_engine.usable_memory_bytes", lambda limit: 1_200_000)
    assert context(n_ctx=0, fit=False) == context(n_ctx=N_CTX) == N_CTX
    lowered = context(n_ctx=0, fit_ctx=32)
    assert 32 < lowered < N_CTX
    assert f"n_ctx: {lowered} tokens for each sequence, as memory has room for of {N_CTX} in training" in caplog.text
    assert context(n_ctx=0) == N_CTX, "it is not lowered below fit_ctx"
