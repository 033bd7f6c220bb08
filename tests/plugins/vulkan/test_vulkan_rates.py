"""Predicted rates of whole models beside those measured on an H100 (docs/performance.md)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pumice.backend.step import Limits
from pumice.config import load_config
from pumice.engine.costs import step_parts
from pumice.engine.overrides import DeviceName
from pumice.engine.rates import Rates, step_seconds
from pumice.engine.sizing import EngineSizes, make_limits
from pumice.engine.tracing import trace
from pumice.gguf import GGMLType, GGUFFile
from pumice.gguf.writer import TensorInfo, Writer
from pumice.graph import Segment
from pumice.model import make_architecture
from pumice.plugin import Launches
from pumice.registry import get_registry
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
N_EXPERT, N_USED = 128, 8


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
        experts = (N_EXPERT,) if sizes is MOE else ()
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
    architecture = "qwen3moe" if sizes is MOE else "llama"
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
    if sizes is MOE:
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

    def __init__(self, joins: bool) -> None:
        super().__init__()
        self._joins = joins

    expert_rows = VulkanBackend.expert_rows

    def launches(self, segment: Segment, limits: Limits) -> Launches:
        return launches_of(segment, lambda decoder: self._joins)


def rates(path: Path, steps: Sequence[int], joins: bool) -> list[float]:
    """Return the predicted tokens per second of steps with so many tokens."""
    with GGUFFile.open(path) as file:
        graph = trace(file, make_architecture(file, get_registry(load_config())), 1024)["main"]
        limits = make_limits({"main": graph}, EngineSizes(1024, 512, 1, "f16"))
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
