"""Optional tensors and spellings that families read differently, as llama.cpp does."""

from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest

import pumice
from pumice.gguf import GGMLType, GGUFFile
from pumice.model_files.opening import architecture_problems
from pumice.plugin.nn.optional import applied
from pumice.plugin.unstable import ArraySource
from reference_models import error
from tiny_models import N_CTX, weights, write_tiny
from tiny_zoo import ZOO

Tensors = dict[str, np.ndarray]
SCALE = np.array([-3.0], np.float32)  # a norm does not hide its sign


def load(tmp_path: Path, name: str, change: Callable[[Tensors], Any] = lambda tensors: None, **keys: Any) -> Any:
    """Logits of a tiny model whose tensors and metadata are changed."""
    model = ZOO[name]
    tensors = {tensor: weights(tensor, shape) for tensor, shape in model.shapes.items()}
    change(tensors)
    path = write_tiny(Path(mkdtemp(dir=tmp_path)) / "model.gguf", model.architecture, model.metadata | keys, tensors)
    with pumice.load(path, backend="numpy", kv_type="f32", n_ctx=N_CTX) as loaded:
        return loaded.logits(model.ids)


@pytest.mark.parametrize(
    ("name", "ignored", "applied"),
    [
        *((name, "attn_gate", "attn_output") for name in ("afmoe", "hrm_text", "laguna", "muse-glimmer", "spark2_5")),
        *((name, "attn_qkv", "attn_output") for name in ("cogvlm", "openelm", "plamo3")),
        *(("hy_v4", "attn_output", ""), ("internlm2", "ffn_up", "attn_q"), ("qwen3vl", "ffn_up", "attn_k")),
        *(("kimi-linear", "ffn_up_exps", "attn_output"), ("minimax-01", "attn_qkv", "attn_q")),
        *(("plamo2", "ssm_out", "attn_output"), ("qwen3next", "ssm_out", "attn_q")),
        *(("qwen3", "attn_nothing", "ffn_down"), ("qwen35", "attn_nothing", "ssm_out")),
        *(("talkie", "ffn_gate", "ffn_down"), ("xverse", "ffn_down", "attn_v")),
    ],
)
def test_scales_of_a_family(tmp_path: Path, tiny_logits: Any, name: str, ignored: str, applied: str) -> None:
    def scale(matrix: str) -> Callable[[Tensors], None]:
        found = [f"blk.{i}.{matrix}" for i in range(9) if f"blk.{i}.{matrix}.weight" in ZOO[name].shapes]
        assert found or "nothing" in matrix
        return lambda tensors: tensors.update({f"{layer}.scale": SCALE for layer in found})

    assert error(load(tmp_path, name, scale(ignored)), tiny_logits[name]) < 1e-6
    if applied:
        assert error(load(tmp_path, name, scale(applied)), tiny_logits[name]) > 1e-4


@pytest.mark.parametrize(("name", "net"), [("minimax-01", "attn_qkv"), ("kimi-linear", "ssm_beta")])
def test_scales_of_attention_alone(tmp_path: Path, tiny_logits: Any, name: str, net: str) -> None:
    for i in range(ZOO[name].metadata["block_count"]):
        scale = {f"blk.{i}.attn_output.scale": SCALE}
        changed = error(load(tmp_path, name, lambda tensors, scale=scale: tensors.update(scale)), tiny_logits[name])
        assert (changed > 1e-4) == (f"blk.{i}.{net}.weight" not in ZOO[name].shapes)


@pytest.mark.parametrize(
    ("name", "ignored", "shape"),
    [
        ("dream", "output.bias", (32,)),
        ("ernie4_5", "blk.0.attn_output.bias", (64,)),
        ("ernie4_5-moe", "blk.0.attn_output.bias", (64,)),
        ("falcon-h1", "blk.0.attn_output.bias", (64,)),
        ("kimi-linear", "blk.0.attn_q.bias", (64,)),
        ("llada", "rope_freqs.weight", (8,)),
        ("llada", "blk.0.ffn_up.bias", (96,)),
        ("mimo2", "blk.0.attn_q.bias", (64,)),
        ("pangu-embedded", "rope_freqs.weight", (8,)),
        ("qwen2vl", "output.bias", (32,)),
        ("qwen4exp", "blk.1.attn_k.bias", (32,)),
        ("refact", "blk.0.ffn_down.bias", (64,)),
    ],
)
def test_tensors_that_a_family_leaves_out(
    tmp_path: Path, tiny_logits: Any, name: str, ignored: str, shape: tuple[int, ...]
) -> None:
    extra = {ignored: np.full(shape, 2.0, np.float32)}
    assert error(load(tmp_path, name, lambda tensors: tensors.update(extra)), tiny_logits[name]) < 1e-6


def test_a_matrix_of_nvfp4_has_its_scale_in_every_family() -> None:
    class Stored(ArraySource):
        type = GGMLType.NVFP4

    plain, stored = ArraySource(np.ones((4, 64))), Stored(np.ones((4, 64)))
    for weight, kept in ((plain, [False, True]), (stored, [True, True])):
        tensors = {"blk.0.ffn_up.weight": weight, "blk.0.ffn_up.scale": ArraySource([2.0])}
        found = [applied(tensors, lambda layer, names=names: names[layer], ()) for names in ([()], [("ffn_up",)])]
        assert ["blk.0.ffn_up.scale" in each for each in found] == kept
        assert all("blk.0.ffn_up.weight" in each for each in found)


def test_qwen3_next_prefers_matrices_apart(tmp_path: Path, tiny_logits: Any) -> None:
    """A file may have the joined matrix of old files as well."""

    def add(tensors: Tensors) -> None:
        n_out = len(tensors["blk.0.attn_qkv.weight"]) + len(tensors["blk.0.attn_gate.weight"])
        tensors["blk.0.ssm_in.weight"] = np.ones((n_out, 64), np.float32)

    assert error(load(tmp_path, "qwen3next", add), tiny_logits["qwen3next"]) < 1e-6


def test_groups_of_heads_may_be_an_axis(tmp_path: Path, tiny_logits: Any) -> None:
    name = "deepseek4-few-pools"
    n_group = ZOO[name].metadata["attention.output_group_count"]

    def apart(tensors: Tensors) -> None:
        for key in [key for key in tensors if key.endswith("attn_output_a.weight")]:
            tensors[key] = tensors[key].reshape(n_group, -1, tensors[key].shape[-1])

    assert error(load(tmp_path, name, apart), tiny_logits[name]) < 1e-6


def test_whole_keys_may_have_positions(tmp_path: Path) -> None:
    """As if the values without a position were all 0."""
    model = ZOO["minicpm3"]
    keys = ("attention.head_count", "attention.key_length", "rope.dimension_count")
    n_head, k_dim, n_rot = (model.metadata[key] for key in keys)
    nope, v_dim = k_dim - n_rot, model.metadata["attention.value_length"]

    def silent(tensors: Tensors) -> None:
        for i in range(2):
            keys = tensors[f"blk.{i}.attn_kv_b.weight"].reshape(n_head, nope + v_dim, -1)
            keys[:, :nope] = 0

    def whole(tensors: Tensors) -> None:
        for i in range(2):
            q, kv = tensors[f"blk.{i}.attn_q_b.weight"], tensors[f"blk.{i}.attn_kv_b.weight"]
            q = q.reshape(n_head, k_dim, -1)[:, nope:] * np.sqrt(n_rot / k_dim)  # the scale of scores
            tensors[f"blk.{i}.attn_q_b.weight"] = q.reshape(n_head * n_rot, -1).astype(np.float32)
            kv = kv.reshape(n_head, nope + v_dim, -1)[:, nope:]
            tensors[f"blk.{i}.attn_kv_b.weight"] = kv.reshape(n_head * v_dim, -1)

    expected = load(tmp_path, "minicpm3", silent)
    assert error(load(tmp_path, "minicpm3", whole, **{"attention.key_length": n_rot}), expected) < 1e-9


def test_a_tensor_that_a_family_does_not_use_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stray = {"blk.0.stray.weight": SCALE}
    for name, model in ZOO.items():
        tensors = {tensor: weights(tensor, shape) for tensor, shape in model.shapes.items()}
        for more in ({}, stray):
            path = write_tiny(tmp_path / f"{name} {len(more)}.gguf", model.architecture, model.metadata, tensors | more)
            with GGUFFile.open(path) as file:
                found = list(architecture_problems(file))
            assert len(found) == len(more), (name, found)
            assert all("1 tensor: blk.0.stray.weight" in line for line in found), (name, found)
    assert not caplog.messages
    load(tmp_path, "qwen3", lambda tensors: tensors.update(stray))
    assert "blk.0.stray.weight" in caplog.text
