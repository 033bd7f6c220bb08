"""Predicted rates of models beside those measured on an H100 and an H200 (bench/notes/performance.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pumice.backend.step import Limits
from pumice.config import load_config
from pumice.engine.placement.costs import NodeCost, StepPart, step_parts
from pumice.engine.placement.overrides import DeviceName, host_layers
from pumice.engine.placement.placement import PlacementRules, find_placement
from pumice.engine.placement.rates import Rates, step_seconds
from pumice.engine.placement.sizing import EngineSizes, make_limits
from pumice.gguf import GGMLType, GGUFFile
from pumice.gguf.writer import TensorInfo, Writer
from pumice.graph import Graph, Segment
from pumice.model_graphs import make_architecture
from pumice.plugin.unstable import Launches
from pumice.registry import get_registry
from pumice.tracing import trace
from pumice_cpu.backend import CpuBackend
from pumice_numpy import NumpyBackend
from pumice_vulkan.backend import VulkanBackend
from pumice_vulkan.launches import launches_of

#: Rates of one H100 with driver 580.159.04, as ``pumice fit`` measured them.
H100 = Rates(
    memory=2165e9,
    compute=149e12,
    link=14.2e9,
    node_seconds=4.1e-6,
    run_seconds=90e-6,
    products={"Q8_0": (2925e9, 132e12), "Q6_K": (2756e9, 138e12), "Q4_K": (2347e9, 148e12)},
)

LLAMA_1B = {"n_layer": 16, "width": 2048, "ffn": 8192, "heads": 32, "kv_heads": 8, "dim": 64, "vocabulary": 128256}
LLAMA_8B = {"n_layer": 32, "width": 4096, "ffn": 14336, "heads": 32, "kv_heads": 8, "dim": 128, "vocabulary": 128256}
MOE = {"n_layer": 12, "width": 2048, "ffn": 768, "heads": 32, "kv_heads": 4, "dim": 128, "vocabulary": 151936}
MOE_48 = MOE | {"n_layer": 48}
N_EXPERT, N_USED = 128, 8
N_CTX, N_PROMPT = 1024, 512


def type_of(name: str, layer: int, n_layer: int, mix: str) -> GGMLType:
    """Return the type of a matrix in a mix; those of llama.cpp have six bits in half of the layers."""
    six = layer < n_layer // 8 or layer >= 7 * n_layer // 8 or (layer - n_layer // 8) % 3 == 2
    if mix == "Q4_K_M":
        return GGMLType.Q6_K if name.startswith(("attn_v", "ffn_down")) and six else GGMLType.Q4_K
    return GGMLType[mix]


def tensors(sizes: Mapping[str, int], mix: str, output: GGMLType) -> list[TensorInfo]:
    width, ffn, dim = sizes["width"], sizes["ffn"], sizes["dim"]
    query, key = sizes["heads"] * dim, sizes["kv_heads"] * dim
    infos = [TensorInfo("token_embd.weight", output, (sizes["vocabulary"], width))]
    infos.append(TensorInfo("output_norm.weight", GGMLType.F32, (width,)))
    for i in range(sizes["n_layer"]):
        rows = {"attn_q": (query, width), "attn_k": (key, width), "attn_v": (key, width), "attn_output": (width, query)}
        experts = (N_EXPERT,) if sizes in (MOE, MOE_48) else ()
        end = "_exps" if experts else ""
        rows |= {f"ffn_{name}{end}": (*experts, ffn, width) for name in ("gate", "up")}
        rows[f"ffn_down{end}"] = (*experts, width, ffn)
        norms = {"attn_norm": (width,), "ffn_norm": (width,)}
        if experts:
            norms |= {"attn_q_norm": (dim,), "attn_k_norm": (dim,), "ffn_gate_inp": (N_EXPERT, width)}
        infos += [TensorInfo(f"blk.{i}.{name}.weight", GGMLType.F32, shape) for name, shape in norms.items()]
        infos += [
            TensorInfo(f"blk.{i}.{name}.weight", type_of(name, i, sizes["n_layer"], mix), shape)
            for name, shape in rows.items()
        ]
    return infos


def write_header(path: Path, sizes: Mapping[str, int], mix: str, output: GGMLType) -> Path:
    """Write a model whose weights are a hole of the file."""
    has_experts = sizes in (MOE, MOE_48)
    architecture = "qwen3moe" if has_experts else "llama"
    fields = {
        "vocab_size": sizes["vocabulary"],
        "block_count": sizes["n_layer"],
        "context_length": 8192,
        "embedding_length": sizes["width"],
        "feed_forward_length": sizes["ffn"],
        "attention.head_count": sizes["heads"],
        "attention.head_count_kv": sizes["kv_heads"],
        "attention.key_length": sizes["dim"],
        "attention.value_length": sizes["dim"],
        "rope.dimension_count": sizes["dim"],
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    if has_experts:
        fields |= {"expert_count": N_EXPERT, "expert_used_count": N_USED, "expert_feed_forward_length": sizes["ffn"]}
    metadata: dict[str, Any] = {"general.architecture": architecture, "tokenizer.ggml.model": "no_vocab"}
    metadata |= {f"{architecture}.{name}": value for name, value in fields.items()}
    writer = Writer(path, metadata, tensors(sizes, mix, output))
    with open(path, "wb") as file:
        file.write(writer.headers[0])
        file.truncate(writer.n_bytes)
    return path


class GPU(NumpyBackend):
    """A device that starts operations as Vulkan does; ``joins``: tokens are one dispatch."""

    offload = True
    reads_in_place = True

    def __init__(self, joins: bool) -> None:
        super().__init__()
        self._joins = joins

    expert_rows = VulkanBackend.expert_rows

    def launches(self, segment: Segment, limits: Limits) -> Launches:
        return launches_of(segment, lambda decoder: self._joins)


def traced(path: Path) -> Graph:
    with GGUFFile.open(path) as file:
        return trace(file, make_architecture(file, get_registry(load_config())), N_CTX)["main"]


def rates(path: Path, steps: Sequence[int], joins: bool) -> list[float]:
    """Return the predicted tokens per second of steps with so many tokens."""
    graph = traced(path)
    limits = make_limits({"main": graph}, EngineSizes(N_CTX, N_PROMPT, 1, "f16"))
    segment = Segment("gpu", graph.nodes, [], list(graph.outputs.values()), gives_logits=True)
    parts = step_parts([segment], graph, limits, {"gpu": GPU(joins)})
    return [n / step_seconds(parts, {DeviceName("gpu", 0): H100}, n, 1, 16) for n in steps]


@pytest.mark.parametrize(
    ("sizes", "mix", "output", "joins", "generated", "prompt"),
    [
        (LLAMA_1B, "Q4_0", "Q6_K", True, 2203, 74978),
        (LLAMA_1B, "Q4_0", "Q6_K", False, 1359, 74978),
        (LLAMA_8B, "Q4_K_M", "Q6_K", True, 508, None),
        (LLAMA_8B, "Q4_K_M", "Q6_K", False, 340, None),
        (MOE, "Q4_K_M", "Q6_K", True, 1662, 52069),
        (MOE, "Q4_K_M", "Q6_K", False, None, 52069),  # 1,016 were measured with norms of heads as dispatches
        (LLAMA_1B, "Q8_0", "Q8_0", False, 1096, 70001),
        (LLAMA_1B, "Q6_K", "Q6_K", False, 1144, 68904),
        (LLAMA_1B, "Q4_K", "Q4_K", False, 1336, 73954),
    ],
)
def test_predicted_rates_are_those_measured(
    tmp_path: Path,
    sizes: Mapping[str, int],
    mix: str,
    output: str,
    joins: bool,
    generated: float | None,
    prompt: float | None,
) -> None:
    path = write_header(tmp_path / "model.gguf", sizes, mix, GGMLType[output])
    predicted = rates(path, (1, 512), joins)
    if generated:
        assert predicted[0] == pytest.approx(generated, rel=0.15)
    if prompt:
        assert predicted[1] == pytest.approx(prompt, rel=0.25)


class Machine(NamedTuple):
    """Measured rates of a GPU and a processor."""

    gpu: Rates
    cpu: Rates


def machine(
    gpu: Sequence[float], cpu: Sequence[float], products: Mapping[str, tuple[float, float]], flops: Mapping[str, float]
) -> Machine:
    """Return rates given in 1e9 bytes, 1e12 operations, and microseconds.

    Earlier versions took a processor's rate of memory from its caches, so that of the H200's machine, 87 to 98 GB/s,
    stands for all: the others had the same cores, which read 72 to 101 GB/s by NumPy's sum.

    Args:
        gpu: ``memory``, ``compute``, ``link``, ``node_seconds``, ``run_seconds``.
        cpu: ``compute``, ``link``, ``node_seconds``, ``run_seconds``.
        products: ``memory`` and ``compute`` of the GPU by type.
        flops: ``compute`` of the processor by type.
    """
    memory, compute, link, node, run = gpu
    of_types = {name: (1e9 * of_memory, 1e12 * of_flops) for name, (of_memory, of_flops) in products.items()}
    times = {"node_seconds": 1e-6 * node, "run_seconds": 1e-6 * run}
    fast = Rates(1e9 * memory, 1e12 * compute, 1e9 * link, read=50e9, products=of_types, **times)
    compute, link, node, run = cpu
    of_types = {name: (CPU_MEMORY[name], 1e12 * rate) for name, rate in flops.items()}
    times |= {"node_seconds": 1e-6 * node, "run_seconds": 1e-6 * run, "cold_seconds": 163e-6}
    return Machine(fast, Rates(92e9, 1e12 * compute, 1e9 * link, products=of_types, **times))


CPU_MEMORY = {"Q4_K": 87e9, "Q6_K": 98e9, "F16": 98e9}

#: Machines with an H100 or an H200 and 16 cores, by the run that measured them.
RUN_10 = machine(
    (1831, 152.2, 15.3, 4.0, 124),
    (2.82, 18.4, 4.5, 27),
    {"Q4_K": (1909, 146.4), "Q6_K": (2564, 75.7), "F16": (3601, 114.1)},
    {"Q4_K": 2.27, "Q6_K": 2.91, "F16": 1.16},
)
RUN_15 = machine(
    (1885, 183.1, 15.0, 3.5, 63),
    (3.02, 14.2, 6.8, 47),
    {"Q4_K": (2116, 84.1), "Q6_K": (502, 46.7), "F16": (2860, 111.1)},
    {"Q4_K": 2.74, "Q6_K": 2.82, "F16": 1.18},
)
H100_A = machine(
    (2038, 174.2, 14.2, 3.5, 67),
    (2.45, 9.1, 5.2, 31),
    {"Q4_K": (565, 57.2), "Q6_K": (502, 57.6), "F16": (2340, 110.7)},
    {"Q4_K": 2.00, "Q6_K": 2.42, "F16": 1.03},
)
H200 = machine(
    (2454, 185.5, 16.0, 3.7, 44),
    (2.84, 10.2, 6.1, 26),
    {"Q4_K": (2147, 182.9), "Q6_K": (2453, 168.5), "F16": (3600, 114.1)},
    {"Q4_K": 2.61, "Q6_K": 2.31, "F16": 1.10},
)

CHOSEN = 0.42
"""Share of the experts that a prompt of 512 random tokens chooses in those models, whose routers are random."""


@dataclass(frozen=True)
class Split:
    """A model that is partly in host memory.

    Attributes:
        sizes: its sizes.
        mix: types of its weights.
        n_gpu_layers: layers on the GPU; -1: all.
        n_cpu_moe: layers whose experts the processor computes.
        in_place: pattern of weights that the GPU reads in host memory.
    """

    sizes: Mapping[str, int]
    mix: str
    n_gpu_layers: int = -1
    n_cpu_moe: int = 0
    in_place: str = ""


def chosen(node: NodeCost, share: float) -> NodeCost:
    """Return the cost of experts of which tokens only choose among a share."""
    if node.share >= 1:
        return node
    return replace(node, weight_bytes=int(share * node.weight_bytes), share=node.share / share)


def with_chosen(part: StepPart) -> StepPart:
    nodes = tuple(chosen(node, CHOSEN) for node in part.nodes)
    groups = tuple(tuple(chosen(node, CHOSEN) for node in group) for group in part.groups)
    return replace(part, nodes=nodes, groups=groups)


def split_rates(path: Path, split: Split, rates: Machine) -> tuple[float, float]:
    """Return the predicted tokens per second of a prompt and of generation."""
    graph = traced(write_header(path, split.sizes, split.mix, GGMLType["F16" if split.mix == "F16" else "Q6_K"]))
    limits = make_limits({"main": graph}, EngineSizes(N_CTX, N_PROMPT, 1, "f16", in_place=split.in_place))
    backends = [("gpu", GPU(split.sizes is MOE_48)), ("cpu", CpuBackend())]
    rules = PlacementRules(n_gpu_layers=split.n_gpu_layers, overrides=tuple(host_layers(split.n_cpu_moe, 0)))
    placed = find_placement([graph], backends, limits, rules)
    parts = step_parts(placed.segments[0], graph, limits, dict(backends))
    of_device = {DeviceName("gpu", 0): rates.gpu, DeviceName("cpu", 0): rates.cpu}
    prompt = step_seconds([with_chosen(part) for part in parts], of_device, N_PROMPT, 1, 0)
    return N_PROMPT / prompt, 1 / step_seconds(parts, of_device, 1, 1, 32)


IN_PLACE = r"^blk\.([0-9]|1[0-6])\.ffn_(up|gate|down)_exps|^blk\.17\.ffn_(up|gate)_exps"
EXPERTS_IN_PLACE = Split(MOE_48, "Q4_K_M", in_place=IN_PLACE)
EXPERTS_ON_CPU = Split(MOE_48, "Q4_K_M", n_cpu_moe=18)
MOE_LAYERS_ON_CPU = Split(MOE_48, "Q4_K_M", n_gpu_layers=32)
DENSE = Split(LLAMA_8B, "F16", n_gpu_layers=25)


@pytest.mark.parametrize(
    ("split", "rates", "prompt", "generated"),
    [
        (EXPERTS_IN_PLACE, H200, 5958, 100.6),
        (EXPERTS_ON_CPU, H100_A, None, 51.5),
        (MOE_LAYERS_ON_CPU, RUN_10, None, 61.8),
        (DENSE, RUN_10, 388, 21.9),
        (DENSE, RUN_15, None, 19.8),
        (DENSE, H200, None, 20.6),
    ],
)
def test_predicted_rates_of_split_models_are_those_measured(
    tmp_path: Path, split: Split, rates: Machine, prompt: float | None, generated: float | None
) -> None:
    predicted = split_rates(tmp_path / "model.gguf", split, rates)
    if prompt:
        assert predicted[0] == pytest.approx(prompt, rel=0.25)
    if generated:
        assert predicted[1] == pytest.approx(generated, rel=0.25)
