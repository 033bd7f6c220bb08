"""Wrong files are a ModelError that names the fault, never another exception or a long wait."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

import tiny_drafts
import tiny_encoders
import tiny_t5
from make_fixtures import families
from pumice.graph import GraphBuilder
from pumice.lazy import resolve
from pumice.plugin import HParams, ModelError
from pumice.plugin.unstable import ArraySource
from pumice_architectures import ARCHITECTURES
from tiny_models import N_CTX
from tiny_zoo import DEEP, LARGEST, ZOO
from waiting import seconds_of

SHALLOW_LARGEST = [name for name in LARGEST.values() if name not in DEEP]
OTHERS = tiny_encoders.MODELS | tiny_drafts.DRAFTS | tiny_t5.MODELS
EVERY = [*SHALLOW_LARGEST, *OTHERS]
HOSTILE = [0, 3, 2**32 - 1, 2**63, -1, 1e-30, float("nan"), True, "text", []]


def tracing(name: str) -> Callable[..., set[str]]:
    """Return a function that traces a tiny model with other metadata or shapes, and returns the tensors it reads.

    ``None`` removes a key; ``__`` in a name stands for a point.
    """
    model, target = families.ALL[name], tiny_drafts.FOR_TARGETS.get(name)
    drafted_for = families.builder_of(target[0]) if target else None
    ones = cache(lambda shape: ArraySource(np.ones(shape, np.float32)))

    def trace(shapes: Mapping[str, tuple[int, ...]] = model.shapes, n_ctx: int = N_CTX, **changes: Any) -> set[str]:
        keys = {f"{model.architecture}.{key.replace('__', '.')}": value for key, value in changes.items()}
        metadata = {key: value for key, value in (model.keys() | keys).items() if value is not None}
        tensors = {key: ones(shape) for key, shape in shapes.items()}
        family, g, read = resolve(ARCHITECTURES[model.architecture])(HParams(metadata)), None, set()
        for build in family.graphs().values():
            g = GraphBuilder(tensors, family.n_layer, n_ctx, shared=g, target=drafted_for)
            build(g)
            read |= {weight.partition("[")[0] for weight in g._weights}
        return read & tensors.keys()

    return trace


def refusals(name: str) -> Callable[..., str]:
    """Return a function that says why a model is refused, if it is; any exception but ModelError fails the test."""
    trace = tracing(name)

    def refusal(*arguments: Any, **changes: Any) -> str:
        try:
            trace(*arguments, **changes)
        except ModelError as error:
            return str(error)
        return ""

    return refusal


TABLES = ("token_embd.weight", "output.weight", "token_types.weight")
WRONG = r"tensor \S+ has shape|does not match|does not broadcast|cannot|must list|rows, expected"


@pytest.mark.parametrize("name", [name for name in EVERY if name != "wavtokenizer-dec"])
def test_a_tensor_that_is_missing_or_misshapen_is_named(name: str) -> None:
    """Unless it is one that models may lack, or that has an alternative."""
    model, refusal, n_missed = families.ALL[name], refusals(name), 0
    for tensor in sorted(tracing(name)()):
        shape, others = model.shapes[tensor], {key: value for key, value in model.shapes.items() if key != tensor}
        missed, wanted = refusal(others), tensor
        for missing, alternative in ALTERNATIVES.items():
            wanted = wanted.replace(missing, alternative)
        named = re.search(f"tensor {wanted} is missing", missed)
        assert named or (may_be_absent(name, tensor) and (not missed or name in OTHERS)), tensor
        n_missed += bool(missed)
        tables = TABLES if name in OTHERS else ("token_embd.weight", "per_layer_token_embd.weight")
        for axis in range(tensor.endswith(tables), len(shape)):  # more tokens, types, classes or n-grams are valid
            refused = refusal(others | {tensor: tuple(n + (i == axis) for i, n in enumerate(shape))})
            assert re.search(WRONG if name in OTHERS else re.escape(tensor), refused), (tensor, axis)
    assert n_missed > 5


def may_be_absent(name: str, tensor: str) -> bool:
    if name in OTHERS:  # a draft's target has tensors of its ends, too
        others = "scale bias attn_v sinks post_attention_norm post_ffw_norm layer_output_scale rope_freqs conf_proj"
        others += " token_types cls cls.output cls.norm ffn_gate attn_rel_b attn_norm_2 attn_q_norm attn_k_norm"
        ends = ("token_embd", "output", "d2t", "blk.0.attn_norm")
        stem = tensor.removesuffix(".weight")
        return stem.endswith(tuple(others.split())) or stem in ends
    optional = ("output.weight", "_norm_2.weight", ".scale", "rope_factors_long.weight", "rope_factors_short.weight")
    of_some = ("rope_freqs.weight", "attn_q_norm.weight", "blk.0.ffn_norm.weight", "blk.1.ffn_norm.weight")
    of_one = {
        "mpt": ("position_embd.weight", "act.scales"),
        "codeshell": ("token_embd.weight",),
        "gemma4": ("attn_v.weight", "layer_output_scale.weight", "ffn_gate_inp.weight"),
        "grok": ("ffn_up.weight",),
        "hy_v3": ("exp_probs_b",),
        "mimo2": ("attn_sinks.weight",),
        "step35": ("attn_gate.weight",),
        "falcon-h1": ("ssm_norm.weight",),
        "arwkv7": ("time_mix_ln.weight",),
        "kimi-k3": ("attn_gate.weight", "ffn_routed_norm.weight"),
    }
    return tensor.endswith((".bias", *optional, *of_some, *of_one.get(ZOO[name].architecture, ())))


ALTERNATIVES = {
    "ffn_gate_up_exps": "ffn_gate_exps",
    "attn_qkv": "attn_(q|qkv)",
    "time_mix_lerp_w": "time_mix_lerp_(w|fused)",
    "ffn_gate_inp.weight": "ffn_gate(_inp)?.weight",
    "attn_kv_b": "attn_k_b",
    "layer_output_norm": "(layer_output|post_ffw)_norm",
    "output.weight": "(output|token_embd).weight",
}
"""What is looked for instead of a tensor that is missing."""


@pytest.mark.parametrize(
    "key",
    ["block_count", "embedding_length", "context_length", "attention.head_count", "attention.layer_norm_rms_epsilon"],
)
def test_missing_and_negative_hyperparameters_are_named(key: str) -> None:
    refusal = refusals("llama-bias")
    assert f"llama.{key} is missing" in refusal(**{key: None})
    assert re.search(rf"llama.{key} is -?\d+.*.* must be", refusal(**{key: -1.0 if "epsilon" in key else -1}))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("llama-bias", {"attention__head_count": 0}, "head_count is 0"),
        ("llama-bias", {"attention__head_count": 3}, "multiple of 2 key heads"),
        ("llama-bias", {"attention__head_count_kv": [2]}, "at least 2 values"),
        ("llama-bias", {"attention__head_count_kv": [2, "x"]}, "'x' for layer 1"),
        ("llama-bias", {"attention__head_count": 128, "attention__key_length": None}, "leave none for each head"),
        ("llama-bias", {"attention__head_count": 2**31}, "must be at most 4096"),
        ("llama-bias", {"rope__dimension_count": 7}, "dimension_count is 7.* must be even"),
        ("llama-bias", {"rope__dimension_count": 18}, "dimension_count is 18.* must be even, above 0 and at most 16"),
        ("rope-yarn", {"rope__scaling__factor": 1e-30}, "1e-30.* must be 0 or at least"),
        ("rope-yarn-betas", {"rope__scaling__yarn_beta_fast": 0.0}, "beta_fast is 0.0"),
        ("gemma2", {"attention__sliding_window": 2**32 - 1}, "sliding_window is 4294967295"),
        ("llama-bias", {"embedding_length": "wide"}, "'wide', expected an integer"),
        ("llama-bias", {"rope__scaling__type": "cubic"}, "'cubic', but only"),
        ("llama-bias", {"rope__freq_base": float("nan")}, "freq_base is nan"),
        ("llama-moe", {"expert_used_count": 5}, "5, but there are only 4 experts"),
        ("llama-moe", {"expert_used_count": 0}, "expert_used_count is 0"),
        ("llama-moe", {"expert_count": 8}, "ffn_gate_inp.weight has shape"),
        ("deepseek2-v3", {"expert_group_count": 5}, "5, which does not divide 12 experts"),
        ("deepseek2-v3", {"expert_group_used_count": 5}, "5 of 4 groups"),
        ("deepseek2-v3", {"expert_group_count": 12}, "cannot take 2 of"),
        ("deepseek2", {"expert_gating_func": 9}, "9, but only"),
        ("qwen2moe", {"expert_count": 2**31}, "2147483648.* must be from 1 to 1024"),
        ("qwen2moe", {"expert_count": None}, "expert_count is 0.* must be"),
        ("dots1", {"expert_gating_func": None}, "expert_gating_func is missing"),
        ("dots1", {"expert_gating_func": 9}, "is 9, but only 1, 2, 3"),
        ("bailingmoe2", {"expert_used_count": 7}, "cannot take 7 of the 6 experts of 2 groups"),
        ("deepseek", {"expert_shared_count": None}, "expert_shared_count is missing"),
        ("deepseek", {"expert_shared_count": -1}, "expert_shared_count is -1"),
        ("deepseek", {"leading_dense_block_count": 2}, "ffn_gate.weight is missing"),
        ("ernie4_5-moe", {"interleave_moe_layer_step": 0}, "step is 0"),
        ("llama4", {"interleave_moe_layer_step": None}, "step is missing"),
        ("dbrx", {"attention__clamp_kqv": None}, "clamp_kqv is missing"),
        ("exaone-moe", {"attention__sliding_window": None}, "sliding_window is missing"),
        ("maple", {"swiglu_clamp_exp": None}, "swiglu_clamp_exp is missing"),
        ("maple", {"swiglu_clamp_exp": [1.0, "x", 1.0]}, "'x' for layer 1"),
        ("maple", {"attention__sliding_window_pattern": [True]}, "at least 2 values"),
        ("gptneox", {"use_parallel_residual": None}, "use_parallel_residual is missing"),
        ("gpt2", {"context_length": 128}, "position_embd.weight has shape"),
        ("granite", {"logit_scale": 0.0}, "logit_scale is 0"),
        ("mamba", {"ssm__state_size": 0}, "state_size is 0"),
        ("mamba2", {"ssm__time_step_rank": 7}, "is 7 heads, for 128 channels in 2 groups"),
        ("mamba2", {"ssm__group_count": None}, "group_count is missing"),
        ("plamo2", {"ssm__time_step_rank": 9}, "is 9, expected a number of heads that divides 128 channels"),
        ("nemotron_h", {"attention__head_count_kv": [0, 0]}, "at least 3 values"),
        ("lfm2", {"shortconv__l_cache": 0}, "l_cache is 0"),
        ("qwen35", {"full_attention_interval": 0}, "interval is 0.* must be at least 1"),
        ("qwen3next", {"ssm__group_count": 3}, "is 4.* multiple of 3 key heads"),
        ("qwen4exp", {"hyper_connection__count": 65}, "count is 65.* must be at most 64"),
        ("qwen4exp", {"attention__indexer__key_length": 4}, "4, less than the 8 values that RoPE rotates"),
        ("qwen4exp-blocks", {"attention__indexer__top_k": 18}, "top_k is 18, expected a multiple of the block size 4"),
        ("qwen4exp", {"ple__layers": [1, 2]}, r"layers is \[1, 2\], expected one layer"),
        ("qwen4exp", {"ple__layers": [4]}, "layers is 4, expected a layer below 4"),
        ("qwen4exp", {"ple__layers": 2}, "layers is 2, expected a list of integers"),
        ("qwen4exp", {"ple__ngram_size": 9}, "ngram_size is 9.* must be from 2 to 8"),
        ("qwen4exp", {"ple__heads_per_ngram": 33}, "heads_per_ngram is 33.* must be from 1 to 32"),
        ("qwen4exp", {"ple__head_vocab_sizes": [37, 41, 43]}, "head_vocab_sizes has 3 numbers, but n-grams need 4"),
        (
            "qwen4exp",
            {"ple__head_vocab_sizes": [37, 41, 0, 43]},
            "head_vocab_sizes has 0, but all values must be at least 1",
        ),
        ("qwen4exp", {"ple__head_offsets": [0, 37, 78, 2**63]}, "per_layer_token_embd.weight has shape"),
        ("qwen4exp", {"ple__eos_token_id": 2**32 - 1}, "eos_token_id is 4294967295.* must be from 0"),
        ("kimi-linear", {"kda__head_dim": 2**31}, "attn_q.weight has shape"),
        ("bailingmoe3", {"kda__gate_lower_bound": 1.0}, "gate_lower_bound is 1.* must be below 0"),
        ("bailingmoe3", {"kda__safe_gate": False}, "safe_gate is false"),
        ("kimi-k3", {"activation__situ_beta": 0.0}, "situ_beta is 0"),
        ("minimax-01", {"attention__recurrent_layers": [True]}, "at least 2 values"),
        ("rwkv6", {"wkv__head_size": 15}, "is 15, expected a divisor of 64"),
        ("rwkv6qwen2", {"attention__head_count_kv": 3}, "is 3, expected a divisor of 4 heads"),
        ("rwkv7", {"attention__decay_lora_rank": 0}, "decay_lora_rank is 0"),
        ("nanbeige", {"num_loops": 0}, "num_loops is 0"),
        ("nanbeige", {"num_loops": 2**31}, "num_loops is 2147483648"),
        ("hrm_text", {"hrm__h_cycles": 3}, "block_count is 12, which differs from the number of layers"),
        ("gemma4-e2b", {"attention__shared_kv_layers": 4}, "leaves a cache to 0 of 4 layers"),
        ("gemma4-e2b", {"attention__shared_kv_layers": 3}, "need heads of the keys' size"),
        ("gemma4-e2b", {"embedding_length_per_layer_input": 7}, "per_layer_token_embd.weight has shape"),
        ("gemma4", {"attention__sliding_window_pattern": [True]}, "at least 2 values"),
        ("qwen2vl", {"rope__dimension_sections": [0, 0, 0, 0]}, "four numbers of pairs"),
        ("qwen2vl", {"rope__dimension_sections": [8, 8]}, "at least 4 values"),
        ("qwen3vl", {"rope__dimension_sections": None}, "dimension_sections is missing"),
        ("mpt", {"attention__max_alibi_bias": -1.0}, "max_alibi_bias is -1"),
        ("minicpm3", {"attention__kv_lora_rank": 0}, "kv_lora_rank is 0"),
        ("granite_swa", {"attention__sliding_window_pattern": [True]}, "at least 2 values"),
        ("graniteswitch", {"adapters__count": 4}, "at least 4 values"),
        ("graniteswitch", {"adapters__lora_rank": 2**31}, "must be at most 4096"),
        ("graniteswitch", {"adapters__token_ids_activate": [1, 2, 32]}, "must list 3 tokens of the vocabulary"),
        ("deci", {"attention__head_count": [4, 0]}, "at least 3 values"),
        ("deepseek4", {"rope__scaling__attn_factor": 0.0}, "attn_factor is 0"),
        ("hunyuan-dense", {"rope__scaling__alpha": float("inf")}, "alpha is inf"),
    ],
)
def test_impossible_hyperparameters(name: str, changes: dict[str, Any], message: str) -> None:
    assert re.search(message, refusals(name)(**changes))


def test_more_context_than_learned_positions() -> None:
    assert f"use n_ctx={N_CTX} or less" in refusals("gpt2")(n_ctx=N_CTX + 1)


@pytest.mark.parametrize("name", SHALLOW_LARGEST)
def test_any_block_count_stops_at_the_first_missing_layer(name: str) -> None:
    n_layer = 1 + max(int(tensor.split(".")[1]) for tensor in ZOO[name].shapes if tensor.startswith("blk."))
    refusal, refused = refusals(name), set[str]()
    many = {"block_count": 2**32, "nextn_predict_layers": 0}
    assert seconds_of(lambda: refused.add(refusal(**many)), 1.0) < 1.0
    assert re.search(rf"blk\.{n_layer}\.|at least \d+ values|num_loops|all cycles|per_layer", refused.pop())


@pytest.mark.parametrize("name", EVERY)
def test_every_key_missing_or_hostile(name: str) -> None:
    """With each key that a family reads, all of its graphs are traced, or refused in one line, at once.

    Keys and models take turns with the values: every fifth one has the same.
    """
    refusal, architecture = refusals(name), families.ALL[name].architecture
    assert refusal() == ""
    for number, key in enumerate(sorted(families.keys_of(architecture, [name])), EVERY.index(name)):
        for value in HOSTILE[number % 5 :: 5]:
            said: list[str] = []
            seconds = seconds_of(lambda: said.append(refusal(**{key: value})), 2.0)  # noqa: B023
            assert seconds < 2.0, f"{key} = {value!r}"
            assert len(said[0].splitlines()) <= 1
        assert len(refusal(**{key: None}).splitlines()) <= 1


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("attention.relative_buckets_count", 1, "is 1, it must be at least 4 and at most 252"),
        ("decoder_start_token_id", 99, "is 99, no token of the vocabulary"),
        ("decoder_block_count", -1, "is -1, it must be at least 1"),
        ("decoder_block_count", 2**32, "dec.blk.2"),
        ("block_count", 2**32, "enc.blk.3"),
    ],
)
def test_impossible_hyperparameters_of_an_encoder_decoder(key: str, value: int, message: str) -> None:
    assert message in refusals("t5-every-bias")(**{key: value})
