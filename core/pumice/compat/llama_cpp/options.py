"""Options of ``Llama``, and those of Pumice that do the same."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypedDict, cast

import pumice
from pumice.compat.llama_cpp.arguments import (
    Ids,
    LlamaGrammar,
    LlamaPromptLookupDecoding,
    Logits,
    LogitsProcessorList,
    StoppingCriteriaList,
)
from pumice.wording import did_you_mean

log = logging.getLogger("pumice")

RANDOM_SEED = 0xFFFFFFFF  # draws a seed


class SamplingOptions(TypedDict, total=False):
    """Options of a text: how its tokens are chosen. Those of ``Llama.generate`` have ``temp`` for ``temperature``."""

    temperature: float
    temp: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repeat_penalty: float
    frequency_penalty: float
    presence_penalty: float
    tfs_z: float
    mirostat_mode: int
    mirostat_tau: float
    mirostat_eta: float
    penalize_nl: bool
    logit_bias: Mapping[int, float] | Mapping[str, float] | None
    logits_processor: LogitsProcessorList | Callable[[Ids, Logits], Logits] | None
    stopping_criteria: StoppingCriteriaList | Callable[[Ids, Logits], bool] | None
    grammar: LlamaGrammar | None


class CompletionOptions(SamplingOptions, total=False):
    """Options of ``Llama.create_completion``."""

    stop: str | Sequence[str] | None
    seed: int | None
    logprobs: int | None
    echo: bool
    stream: bool
    model: str | None


class ChatOptions(SamplingOptions, total=False):
    """Options of ``Llama.create_chat_completion``."""

    tools: Sequence[Mapping[str, object]] | None
    tool_choice: str | Mapping[str, object] | None
    functions: Sequence[Mapping[str, object]] | None
    function_call: str | Mapping[str, object] | None
    response_format: Mapping[str, object] | None
    max_tokens: int | None
    stop: str | Sequence[str] | None
    seed: int | None
    logprobs: bool | None
    top_logprobs: int | None
    stream: bool
    model: str | None


class IgnoredOptions(TypedDict, total=False):
    """Options of ``Llama`` that change nothing here: Pumice decides by itself, or has no such step."""

    n_ubatch: int
    n_threads_batch: int | None
    embedding: bool
    flash_attn: bool
    op_offload: bool | None
    swa_full: bool | None
    no_perf: bool
    verbose: bool
    n_parts: int
    f16_kv: bool


class RefusedOptions(TypedDict, total=False):
    """Options of ``Llama`` that Pumice does not have: only their defaults are taken."""

    vocab_only: bool
    lora_base: str | None
    chat_handler: object
    tokenizer: object
    spm_infill: bool
    rope_scaling_type: int
    attention_type: int
    yarn_ext_factor: float
    yarn_attn_factor: float
    yarn_beta_fast: float
    yarn_beta_slow: float
    yarn_orig_ctx: int


class LlamaOptions(IgnoredOptions, RefusedOptions, total=False):
    """Options of ``Llama``; the defaults are llama-cpp-python's."""

    n_gpu_layers: int
    split_mode: int
    main_gpu: int
    tensor_split: Sequence[float] | None
    use_mmap: bool
    use_mlock: bool
    kv_overrides: Mapping[str, bool | int | float | str] | None
    seed: int
    n_ctx: int
    n_batch: int
    n_threads: int | None
    rope_freq_base: float
    rope_freq_scale: float
    pooling_type: int
    logits_all: bool
    offload_kqv: bool
    last_n_tokens_size: int
    lora_path: str | None
    lora_scale: float
    numa: bool
    chat_format: str | None
    draft_model: LlamaPromptLookupDecoding | None
    type_k: int | None
    type_v: int | None


_REFUSED: Mapping[str, object] = {
    "vocab_only": False,
    "lora_base": None,
    "chat_handler": None,
    "tokenizer": None,
    "spm_infill": False,
    "rope_scaling_type": -1,
    "attention_type": -1,
    "yarn_ext_factor": -1.0,
    "yarn_attn_factor": 1.0,
    "yarn_beta_fast": 32.0,
    "yarn_beta_slow": 1.0,
    "yarn_orig_ctx": 0,
}
_SAMPLED = {
    "temperature": 0.8,
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.05,
    "typical_p": 1.0,
    "repeat_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
}
_RENAMED = {"mirostat_mode": "mirostat", "mirostat_tau": "mirostat_tau", "mirostat_eta": "mirostat_eta"}
_CACHE_TYPES = {0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 30: "bf16"}
_CHAT_FORMATS = {"llama-2": "llama2", "llama-3": "llama3", "mistral-instruct": "mistral-v1"}
_SAME = {"n_gpu_layers": 0, "main_gpu": 0, "n_ctx": 512, "n_batch": 512}


def check_names(function: str, options: Mapping[str, object], known: type) -> None:
    """Raise TypeError for an option that a function does not have."""
    for name in options:
        if name not in known.__annotations__:
            hint = did_you_mean(name, known.__annotations__)
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


def without_unknown(options: Mapping[str, object]) -> LlamaOptions:
    """Return the options of ``Llama`` without unknown ones, which a warning names: programs pass those of forks.

    Raises TypeError for one that looks like a misspelt name.
    """
    unknown = [name for name in options if name not in LlamaOptions.__annotations__]
    for name in unknown:
        if did_you_mean(name, LlamaOptions.__annotations__):
            check_names("Llama.__init__", {name: options[name]}, LlamaOptions)
    if unknown:
        log.warning("Llama: no such options, ignored: %s", ", ".join(unknown))
    return cast("LlamaOptions", {name: value for name, value in options.items() if name not in unknown})


def generate_options(
    options: SamplingOptions | CompletionOptions | ChatOptions, last_n: int, seed: int
) -> pumice.GenerateOptions:
    """Return the options of ``pumice.Model.generate`` for those of a text."""
    chosen: dict[str, object] = {"seed": seed, "rng": "mt19937", "repeat_last_n": last_n, "min_keep": 1}
    given: Mapping[str, object] = {**options}
    for name, default in _SAMPLED.items():
        chosen[name] = given.get(name, default)
    if "temp" in given:
        chosen["temperature"] = given["temp"]
    chosen["top_k"] = max(0, int(cast("int", chosen["top_k"])))
    chosen |= {ours: given[theirs] for theirs, ours in _RENAMED.items() if theirs in given}
    if bias := options.get("logit_bias"):
        chosen["logit_bias"] = {int(token): float(value) for token, value in bias.items()}
    for option in ("logits_processor", "stopping_criteria"):
        if (functions := given.get(option)) is not None:
            chosen[option] = functions
    if grammar := options.get("grammar"):
        chosen |= grammar.options
    if stop := given.get("stop"):
        chosen["stop"] = stop
    return cast("pumice.GenerateOptions", chosen)


def load_options(options: LlamaOptions) -> pumice.EngineOptions:
    """Return the options of ``pumice.load`` for those of ``Llama``, with llama-cpp-python's defaults.

    Raises TypeError for an unknown option, and ValueError for a value that Pumice cannot do.
    """
    given: Mapping[str, object] = {**options}
    for name, default in _REFUSED.items():
        if given.get(name, default) != default:
            raise ValueError(f"{name}: Pumice has no such option; leave it out ({name}={default!r})")
    chosen: dict[str, object] = {name: given.get(name, default) for name, default in _SAME.items()}
    chosen |= {"n_parallel": 1, "mmap": options.get("use_mmap", True), "mlock": options.get("use_mlock", False)}
    chosen |= {"kv_offload": options.get("offload_kqv", True), "tensor_split": options.get("tensor_split") or []}
    chosen["split_mode"] = "none" if options.get("split_mode", 1) == 0 else "auto"
    overrides = dict(options.get("kv_overrides") or {})
    if base := options.get("rope_freq_base"):
        overrides["*.rope.freq_base"] = base
    if scale := options.get("rope_freq_scale"):
        overrides |= {"*.rope.scaling.type": "linear", "*.rope.scaling.factor": 1 / scale}
    chosen["override_kv"] = overrides
    if types := {value for name in ("type_k", "type_v") if (value := given.get(name)) is not None}:
        if len(types) > 1 or not types <= _CACHE_TYPES.keys():
            raise ValueError(
                f"type_k, type_v: expected one of {sorted(_CACHE_TYPES)} for both, not {sorted(map(str, types))}"
            )
        chosen["kv_type"] = _CACHE_TYPES[cast("int", types.pop())]
    if path := options.get("lora_path"):
        chosen["adapters"] = {"lora": {"file": path, "scale": options.get("lora_scale", 1.0)}}
    if options.get("numa"):
        chosen["numa"] = "distribute"
    if template := options.get("chat_format"):
        chosen["chat_template"] = _CHAT_FORMATS.get(template, template)
    chosen["speculate"] = "ngram" if options.get("draft_model") else "auto"
    return cast("pumice.EngineOptions", chosen)


@contextlib.contextmanager
def errors_as_llama() -> Iterator[None]:
    """Raise ValueError, as llama-cpp-python does, for requests that Pumice refuses."""
    try:
        yield
    except pumice.PromptTooLongError as error:
        text = f"Requested tokens ({error.n_prompt_tokens}) exceed context window of {error.n_ctx}"
        raise ValueError(text) from error
    except pumice.RequestError as error:
        raise ValueError(str(error)) from error
