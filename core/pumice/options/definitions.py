"""Every option of the Python API and of the configuration: keys, types, bounds, defaults, meanings, flags, groups.

Type checkers and editors read these classes as they stand; everything else reads ``pumice.options`` at run time.
"""

import errno
import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Annotated, Literal, TypedDict

from pumice.options.functions import LayerFunction, LogitsProcessor, StoppingCriteria
from pumice.options.option import Option

KVType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]
"""Types of the key/value cache."""

Algorithm = Literal["confidence", "entropy", "margin", "origin", "random"]
"""Order in which a diffusion model fills masked positions."""

MAX_COMPLETIONS = 65_536
"""Maximum number of completions of one request."""

RNG = Literal["pcg64", "mt19937"]
"""Generators of random numbers."""

_Sampling = partial(Option, group="Sampling")
_Penalty = partial(Option, group="Penalties")
_Text = partial(Option, group="Generation")
_Request = partial(Option, group="Request")
_Output = partial(Option, group="Structured output")
_Diffusion = partial(Option, group="Diffusion")
_Chat = partial(Option, group="Chat")
_Reasoning = partial(Option, group="Reasoning")
_Model = partial(Option, group="Model")
_Context = partial(Option, group="Context")
_Device = partial(Option, group="Backend")
_Engine = partial(Option, group="Scheduling")
_Security = partial(Option, group="Sandbox")


def _check_path(value: str) -> None:
    """Raise ValueError for texts that no system call takes as a path, such as one with a null character."""
    if value and not value.strip():
        raise ValueError("the name of a file, or empty")
    try:
        os.lstat(os.path.expanduser(value))
    except ValueError:
        raise ValueError("a path") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise ValueError("a shorter path") from None


def _check_shares(value: Sequence[float]) -> None:
    if not all(0 <= share < float("inf") for share in value) or (value and not any(value)):
        raise ValueError("a list of shares, at least 0 and not all 0")


class SamplingOptions(TypedDict, total=False):
    """Parameters of the samplers that come with Pumice, by the names of llama.cpp's requests.

    Attributes:
        temperature: Temperature: above 1 flattens the distribution, below 1 sharpens it; 0 selects the most probable
            token.
        top_k: Keep the k most probable tokens; 0 or -1 keeps all.
        top_p: Keep the most probable tokens whose probabilities add up to p; 1 keeps all tokens.
        min_p: Keep tokens at least p times as probable as the most probable one; 0 keeps all.
        seed: Seed of the random numbers: the same seed gives the same text; -1 draws one.
        rng: Generator of the random numbers; mt19937 gives llama.cpp's text for a seed.
        min_keep: Minimum number of tokens that typical_p, top_p and min_p keep, and that xtc leaves.
        typical_p: Keep tokens whose surprise is close to the expected one, up to this probability; 1 keeps all.
        top_n_sigma: Keep logits within n standard deviations of the highest one; 0 or less keeps all.
        xtc_probability: Probability of dropping, at a token, all but the last of the tokens above xtc_threshold (XTC).
        xtc_threshold: Probability from which on XTC may drop a token; above 0.5 it is off.
        dynatemp_range: Dynamic temperature: largest distance from temperature, scaled by the entropy; 0 is off.
        dynatemp_exponent: Exponent of the entropy in dynamic temperature.
        mirostat: Version of Mirostat, which holds the surprise of the text at a target; 0 is off.
        mirostat_tau: Target surprise of Mirostat, in bits.
        mirostat_eta: Learning rate of Mirostat.
        adaptive_target: Probability near which adaptive-p chooses tokens, from 0 to 1; below 0 it is off.
        adaptive_decay: Weight of earlier tokens in the mean that adaptive-p corrects: about 1 / (1 - decay) tokens
            count.
        logit_bias: Numbers added to the logits of tokens, by token id; -inf forbids a token.
        ignore_eos: Forbid the tokens that end a text.
        repeat_penalty: Divisor of the positive logits of recent tokens, factor of negative ones; 1 is off.
        repeat_last_n: Number of recent tokens, prompt included, that penalties consider; 0 is off.
        frequency_penalty: Number subtracted from the logit of a recent token for each of its occurrences; 0 is off.
        presence_penalty: Number subtracted once from the logit of a token that occurred recently; 0 is off.
        dry_multiplier: Strength of the penalty on tokens that would repeat an earlier sequence (DRY); 0 is off.
        dry_base: Growth of the DRY penalty with each repeated token.
        dry_allowed_length: Length of a repetition up to which DRY allows it, in tokens.
        dry_penalty_last_n: Number of recent tokens that DRY searches for repetitions; 0 is off.
        dry_sequence_breakers: Strings at which a repetition ends for DRY: at most 64, of at most 40 characters.
    """

    temperature: Annotated[float, _Sampling(0.8, "--temp --temperature", ge=0)]
    top_k: Annotated[int, _Sampling(40, "--top-k", ge=-1)]
    top_p: Annotated[float, _Sampling(0.95, "--top-p", ge=0, le=1)]
    min_p: Annotated[float, _Sampling(0.05, "--min-p", ge=0, le=1)]
    seed: Annotated[int, _Sampling(-1, "-s --seed", ge=-1)]
    rng: Annotated[RNG, _Sampling("pcg64")]
    min_keep: Annotated[int, _Sampling(0, ge=0)]
    typical_p: Annotated[float, _Sampling(1.0, "--typical --typical-p", ge=0, le=1)]
    top_n_sigma: Annotated[float, _Sampling(-1.0, "--top-nsigma --top-n-sigma")]
    xtc_probability: Annotated[float, _Sampling(0.0, "--xtc-probability", ge=0, le=1)]
    xtc_threshold: Annotated[float, _Sampling(0.1, "--xtc-threshold", ge=0, le=1)]
    dynatemp_range: Annotated[float, _Sampling(0.0, "--dynatemp-range", ge=0)]
    dynatemp_exponent: Annotated[float, _Sampling(1.0, "--dynatemp-exp", ge=0)]
    mirostat: Annotated[int, _Sampling(0, "--mirostat", ge=0, le=2)]
    mirostat_tau: Annotated[float, _Sampling(5.0, "--mirostat-ent", ge=0)]
    mirostat_eta: Annotated[float, _Sampling(0.1, "--mirostat-lr", ge=0)]
    adaptive_target: Annotated[float, _Sampling(-1.0, "--adaptive-target", le=1)]
    adaptive_decay: Annotated[float, _Sampling(0.9, "--adaptive-decay", ge=0, le=0.99)]
    logit_bias: Annotated[Mapping[int, float], _Sampling({}, noun="a mapping of token ids to numbers")]
    ignore_eos: Annotated[bool, _Sampling(False, "--ignore-eos")]
    repeat_penalty: Annotated[float, _Penalty(1.0, "--repeat-penalty", gt=0)]
    repeat_last_n: Annotated[int, _Penalty(64, "--repeat-last-n", ge=0)]
    frequency_penalty: Annotated[float, _Penalty(0.0, "--frequency-penalty")]
    presence_penalty: Annotated[float, _Penalty(0.0, "--presence-penalty")]
    dry_multiplier: Annotated[float, _Penalty(0.0, "--dry-multiplier", ge=0)]
    dry_base: Annotated[float, _Penalty(1.75, "--dry-base", ge=1)]
    dry_allowed_length: Annotated[int, _Penalty(2, "--dry-allowed-length", ge=0)]
    dry_penalty_last_n: Annotated[int, _Penalty(64, "--dry-penalty-last-n", ge=0)]
    dry_sequence_breakers: Annotated[Sequence[str], _Penalty(["\n", ":", '"', "*"], "--dry-sequence-breaker")]


class OutputOptions(TypedDict, total=False):
    """The format of the text; at most one of the first four.

    Attributes:
        grammar: Grammar of the text, in GBNF or Lark.
        json_schema: JSON schema of the text: a mapping, JSON text, or a pydantic class.
        regex: Regular expression that the text matches.
        choices: Texts, one of which is generated.
        json_whitespace: Allow indented JSON, which is compact otherwise.
        grammar_triggers: Texts from the first of which on the grammar applies; the text before is free.
    """

    grammar: Annotated[str | None, _Output(None, "--grammar")]
    json_schema: Annotated[Mapping[str, object] | str | bool | type | None, _Output(None, "-j --json-schema")]
    regex: Annotated[str | None, _Output(None, "--regex")]
    choices: Annotated[Sequence[str] | None, _Output(None)]
    json_whitespace: Annotated[bool, _Output(False)]
    grammar_triggers: Annotated[Sequence[str] | None, _Output(None, noun="a list of texts")]


class RequestOptions(TypedDict, total=False):
    """Options of one request beside its prompt, its samplers' parameters, and the format of its text.

    Attributes:
        max_tokens: Maximum number of tokens to generate; None or -1: until the model ends the text or the context is
            full.
        min_tokens: Minimum number of tokens before an end token or a stop string ends the text; a grammar may end
            earlier.
        stop: One or several strings that end the text and are left out of it.
        stop_tokens: Token ids that end the text and are left out of it.
        special: Ids of control tokens that appear as text in the output.
        samplers: Names of the chain's samplers, first to last; None: the configured chain.
        echo: Begin the text with the prompt.
        suffix: Text after the generated one, for models with tokens for filling in (infill).
        logprobs: Return the log-probability of each token, and of this many of the most probable tokens; True stands
            for top_logprobs, or 0.
        top_logprobs: Number of the most probable tokens to return with logprobs=True.
        logprobs_sampled: Take log-probabilities after the sampler chain, not those of the model.
        logits_processor: Function of the token ids so far, int32, and the logits of the next token, float32
            ``[n_vocab]``, that returns the logits to sample from. It needs an engine in this process, and is called on
            the host before each token, so that a device picks none by itself.
        stopping_criteria: Function of the same arguments; True ends the text before the next token.
        on_layer: Functions by layer, such as ``{12: function}``, of rows, float32 ``[n, n_embd]``, and their positions;
            they may return rows that the model goes on with. Layers are named as in ``hidden``.
        n_ctx: Maximum number of positions of this sequence; None allows those of the model.
        context_shift: Drop the older half of a full context and continue.
        timeout: Request timeout in seconds, including time in the queue.
        newline_timeout: Seconds after the first token from which on the next newline ends the text.
        priority: Requests with a higher priority run first; after 30 seconds in the queue a request runs next anyway.
        cache_salt: Requests share cached prefixes only with requests that have the same salt.
        speculate: Speculative decoding: auto or True, off or False, or names of proposers with commas between; None as
            configured. Changes speed only, except that float matrices may round differently.
        n_draft: Maximum number of drafted tokens per batch; 0: none; None: that of the configuration.
        prediction: Text that the answer is expected to resemble, such as the file to edit, whose tokens are drafts
            unless speculate is off. Changes speed only, like speculate.
        request_id: Name of the request in logs.
        adapters: Scale of each adapter by name, 0 for those left out; None as configured.
        diffusion_steps: Denoising steps (diffusion models only); by default one per token.
        diffusion_algorithm: Order in which a diffusion model fills positions.
        block_length: Tokens that a diffusion model fills before it turns to the following ones; by default all.
        cfg_scale: Classifier-free guidance of a diffusion model: how strongly the prompt counts; 0 is off.
    """

    max_tokens: Annotated[int | None, _Text(128, "-n --predict --n-predict", ge=-1, noun="an integer")]
    min_tokens: Annotated[int, _Text(0, ge=0)]
    stop: Annotated[str | Sequence[str] | None, _Text(None, "-r --reverse-prompt --stop")]
    stop_tokens: Annotated[Collection[int], _Text((), noun="a list of token ids")]
    special: Annotated[Collection[int], _Text((), noun="a list of token ids")]
    samplers: Annotated[Sequence[str] | None, _Sampling(None, "--samplers", noun="a list of names")]
    echo: Annotated[bool, _Text(False)]
    suffix: Annotated[str | None, _Text(None)]
    logprobs: Annotated[bool | int | None, _Text(None, ge=0, noun="an integer")]
    top_logprobs: Annotated[int | None, _Text(None, ge=0, noun="an integer")]
    logprobs_sampled: Annotated[bool, _Text(False)]
    logits_processor: Annotated[LogitsProcessor | None, _Sampling(None, noun="a function")]
    stopping_criteria: Annotated[StoppingCriteria | None, _Sampling(None, noun="a function")]
    on_layer: Annotated[
        Mapping[int | str, LayerFunction] | None, _Request(None, noun="a mapping of layers to functions")
    ]
    n_ctx: Annotated[int | None, _Request(None, ge=1, noun="an integer")]
    context_shift: Annotated[bool, _Request(False, "--context-shift")]
    timeout: Annotated[float | None, _Request(None, ge=0, noun="a number of seconds")]
    newline_timeout: Annotated[float | None, _Request(None, ge=0, noun="a number of seconds")]
    priority: Annotated[int, _Request(0)]
    cache_salt: Annotated[str, _Request("")]
    speculate: Annotated[str | bool | None, _Request(None)]
    n_draft: Annotated[int | None, _Request(None, ge=0)]
    prediction: Annotated[str | None, _Request(None)]
    request_id: Annotated[str, _Request("")]
    adapters: Annotated[Mapping[str, float] | None, _Request(None, noun="a mapping of names to numbers")]
    diffusion_steps: Annotated[int | None, _Diffusion(None, "--diffusion-steps", ge=1, noun="an integer")]
    diffusion_algorithm: Annotated[Algorithm, _Diffusion("confidence", "--diffusion-algorithm")]
    block_length: Annotated[int | None, _Diffusion(None, "--diffusion-block-length", ge=1, noun="an integer")]
    cfg_scale: Annotated[float, _Diffusion(0.0, "--diffusion-cfg-scale", ge=-1e6, le=1e6)]


class QueueOptions(TypedDict, total=False):
    """Keywords of ``embed``, ``score`` and their like, which are those of ``generate``."""

    priority: int
    timeout: float | None


class GenerateOptions(RequestOptions, OutputOptions, SamplingOptions, total=False):
    """Keywords of ``Model.generate``, ``stream`` and their like.

    Attributes:
        sampling: Parameters of samplers as one object; keywords take precedence. A mapping may have parameters of
            samplers from other plugins.
    """

    sampling: Annotated[Mapping[str, object], _Sampling({}, noun="a mapping of names to values")]


class CountedOptions(GenerateOptions, total=False):
    """Keywords of ``Model.request``.

    Attributes:
        n: Number of completions; the prompt is read once, and each seed is higher by one.
    """

    n: Annotated[int, _Text(1, ge=1, le=MAX_COMPLETIONS)]


class TemplateOptions(TypedDict, total=False):
    """Options of a chat template and of the parser of its answers.

    Attributes:
        tools: Tools that the model may call: Python functions, or descriptions as in OpenAI's chat completions.
        tool_choice: "auto" lets the model decide, "none" hides the tools, "required" demands a call; the name of a
            tool, or an object of chat completions, demands a call of that tool.
        parallel_tool_calls: Allow several calls in one answer.
        response_format: Format of the answer, as in chat completions: type "text", "json_object" or "json_schema".
        chat_template: Name of a chat template, or its text in Jinja; None: the model's.
        template_variables: Further variables of the chat template.
        continue_final_message: Continue the last message instead of adding one; None does so if it is the assistant's.
        add_generation_prompt: Begin a message of the assistant at the end of the prompt.
        reasoning: Switch reasoning on or off; None leaves it to the template.
        reasoning_effort: Effort for templates that know it: "low", "medium" or "high"; "none" switches reasoning off.
        reasoning_budget: Maximum number of reasoning tokens, after which the answer follows; None is unlimited.
        reasoning_budget_message: Text that ends the reasoning when its budget is spent.
        separate_reasoning: Return reasoning apart from the content; False leaves it there with its marks.
    """

    tools: Annotated[Sequence[object], _Chat((), noun="a list")]
    tool_choice: Annotated[str | Mapping[str, object], _Chat("auto")]
    parallel_tool_calls: Annotated[bool, _Chat(True)]
    response_format: Annotated[Mapping[str, object] | None, _Chat(None)]
    chat_template: Annotated[str | None, _Chat(None, "--chat-template")]
    template_variables: Annotated[Mapping[str, object], _Chat({}, "--chat-template-kwargs", noun="an object")]
    continue_final_message: Annotated[bool | None, _Chat(None)]
    add_generation_prompt: Annotated[bool, _Chat(True)]
    reasoning: Annotated[bool | None, _Reasoning(None, "-rea --reasoning")]
    reasoning_effort: Annotated[str | None, _Reasoning(None, "--reasoning-effort")]
    reasoning_budget: Annotated[int | None, _Reasoning(None, "--reasoning-budget", ge=0, noun="a number of tokens")]
    reasoning_budget_message: Annotated[str, _Reasoning("", "--reasoning-budget-message")]
    separate_reasoning: Annotated[bool, _Reasoning(True)]


class ChatOptions(TemplateOptions, GenerateOptions, total=False):
    """Keywords of ``Model.chat``, ``chat_stream`` and their like."""


class EngineOptions(TypedDict, total=False):
    """Keywords of ``pumice.load`` and keys of the configuration; a key that is missing here is a backend's section.

    Attributes:
        backend: Name of the backend; auto: the first available one of `backends`.
        backends: Order in which auto tries backends, without those that are not installed. Operations that a backend
            does not support run on the next one.
        n_gpu_layers: Number of layers on a GPU backend, counted from the last; -1: all.
        devices: GPUs to use, such as Vulkan0, in the order of their layers; none: no GPU; empty: as the backend's
            section says.
        split_mode: Use of several GPUs: layer splits the layers over all of devices (by default every GPU), none uses
            main_gpu alone, auto what devices or the backend's section name.
        main_gpu: Number of the GPU that split_mode none uses, among devices.
        tensor_split: Share of the layers for each GPU, such as 3,1; empty: in proportion to free memory.
        override_tensors: REGEX=DEVICE: tensors whose names match are placed on a device, CPU or Vulkan0, which computes
            with them. The first match counts.
        n_cpu_moe: Number of first layers whose experts stay in host memory; -1: all layers.
        n_cpu_ffn: Number of first layers whose dense feed-forward matrices stay in host memory; -1: all layers.
        moe_in_place: Let a GPU that can read the experts that stay in host memory compute them; off: the CPU does.
        kv_offload: Keep the key/value cache of layers on a GPU there; False keeps it in host memory.
        mmap: Map the model's file into memory; False reads it into memory that is the process's own.
        mlock: Lock the weights that host memory holds, so that they are never swapped out.
        numa: On machines with several memory nodes: distribute interleaves what loading allocates over all nodes,
            isolate stays on the node where loading began, numactl leaves both to numactl.
        fit: Place only as many layers on GPUs as memory has room for, and lower a context of 0; otherwise place what
            the other options say, and fail if memory runs out.
        fit_target: Memory of each GPU that fit leaves free for other programs: in MiB, or with a unit such as 2GiB.
        fit_ctx: Tokens below which fit does not lower a context of 0.
        n_ctx: Context in tokens, shared by the sequences computed at once. 0: what the model was trained for, for each
            sequence, as far as memory has room.
        cache_share: Share of the memory free beside the model that the key/value cache of a context of 0 may take; of
            host memory it takes at most half of that. pumice serve divides it among several models.
        n_batch: Maximum number of tokens in a batch.
        n_parallel: Maximum number of sequences in a batch; they share the context.
        kv_type: Type of the key/value cache.
        kv_rotate: Rotate keys and values by Hadamard matrices before they are quantized, which makes a quantized
            key/value cache more accurate.
        cache_ram: Host memory for prompts that leave the key/value cache, from which they are loaded again: in MiB, or
            with a unit such as 8GiB; 0: none.
        cache_disk: Folder for prompts, which later processes of the same user load from there; empty: none.
        cache_saved: Folder for the caches of prompts that are saved one by one, unless cache_disk keeps all; empty:
            none. pumice serve --slot-save-path sets it.
        cache_disk_limit: Maximum size of the folder of cache_disk or cache_saved: in GiB, or with a unit such as
            500MiB. Entries that save least time for their size are deleted first.
        memory_limit: Maximum memory of an engine's process, without the mapped model file (Linux): in GiB, or with a
            unit such as 500MiB; 0: unlimited.
        max_queue: Maximum number of waiting requests; further ones are refused (QueueFullError). -1: unlimited.
        prefill_tokens: Maximum tokens of prompts in a batch in which other sequences generate, which bounds the gaps
            between their tokens; 0: n_batch on a GPU, 32 elsewhere.
        lookahead: Maximum number of tokens in a row that a device picks before the host looks at them; 0: none; -1: as
            many as 20 milliseconds allow. Changes speed only.
        speculate: Speculative decoding: auto, off, or names of proposers with commas between. Changes speed only,
            except that float matrices may round differently; auto drafts only where they do not.
        n_draft: Number of drafted tokens per sequence that a batch verifies; 0: none; -1: as many as are expected to
            save time, 15 at most.
        samplers: The sampler chain, first to last.
        sampling: Default parameters of the samplers.
        chat_template: Name of a chat template, or its text in Jinja; empty: the template in the model's file.
        mmproj: Projector (mmproj*.gguf) for images and sounds, read with the first of them; empty: the one beside the
            model; off: none.
        vocoder: Vocoder (*wavtokenizer*.gguf) of a model that speaks; empty: the one beside the model; off: none.
        image_min_tokens: Fewest tokens of an image, for encoders of any image size; 0: as the projector says.
        image_max_tokens: Most tokens of an image, for encoders of any image size; 0: as the projector says.
        draft: File or folder of a model that drafts tokens for this one: any smaller model, best with the same
            vocabulary, or layers that read this model's caches and weights.
        draft_max: Maximum number of tokens that the draft model proposes per batch.
        draft_min: Minimum number of tokens of the draft model's proposals; shorter ones are dropped.
        draft_p_min: Minimum probability of a token in the draft model; a less probable one ends the proposal.
        draft_n_ctx: Context of the draft model in tokens, shared by the sequences computed at once; 0: that of the
            model.
        draft_n_gpu_layers: Number of the draft model's layers on a GPU backend, counted from the last; -1: all.
        override_kv: Metadata to use instead of that in the model's file, by key; `*.` at the beginning of a key stands
            for the architecture.
        adapters: LoRA adapters and control vectors: a name for each, and its file or a mapping of file, scale and
            layers.
        models: Names of models and their options, over those of the catalogue.
        sandbox: Confine engine processes: auto as far as the system can, on or not start them at all, off never.
        sandbox_read: Further files and folders that a confined engine may read.
        sandbox_write: Further existing folders that a confined engine may write to.
    """

    backend: Annotated[str, _Device("auto", "--backend")]
    backends: Annotated[Sequence[str], _Device(["mlx", "vulkan", "cpu", "numpy"])]
    n_gpu_layers: Annotated[int, _Device(-1, "-ngl --n-gpu-layers --gpu-layers", ge=-1)]
    devices: Annotated[Sequence[str], _Device([], "-dev --device")]
    split_mode: Annotated[Literal["auto", "none", "layer"], _Device("auto", "-sm --split-mode")]
    main_gpu: Annotated[int, _Device(0, "-mg --main-gpu", ge=0)]
    tensor_split: Annotated[
        Sequence[float], _Device([], "-ts --tensor-split", noun="a list of numbers", rule=_check_shares)
    ]
    override_tensors: Annotated[Sequence[str], _Device([], "-ot --override-tensor")]
    n_cpu_moe: Annotated[int, _Device(0, "-ncmoe --n-cpu-moe", ge=-1)]
    n_cpu_ffn: Annotated[int, _Device(0, "-ncffn --n-cpu-ffn", ge=-1)]
    moe_in_place: Annotated[Literal["on", "off"], _Device("on", "--moe-in-place")]
    kv_offload: Annotated[bool, _Device(True)]
    mmap: Annotated[bool, _Device(True)]
    mlock: Annotated[bool, _Device(False, "--mlock")]
    numa: Annotated[Literal["off", "distribute", "isolate", "numactl"], _Device("off", "--numa")]
    fit: Annotated[bool, _Device(True, "-fit --fit")]
    fit_target: Annotated[int | str, _Device(0, "-fitt --fit-target", ge=0, le=2**20, unit="MiB")]
    fit_ctx: Annotated[int, _Device(4096, "-fitc --fit-ctx", ge=1)]
    n_ctx: Annotated[int, _Context(0, "-c --ctx-size --n-ctx", ge=0)]
    cache_share: Annotated[float, _Context(1.0, "--cache-share", gt=0, le=1)]
    n_batch: Annotated[int, _Context(512, "-b --batch-size --n-batch", ge=1)]
    n_parallel: Annotated[int, _Context(4, "-np --parallel", ge=1)]
    kv_type: Annotated[KVType, _Context("f16", "-ctk --cache-type-k --kv-type")]
    kv_rotate: Annotated[bool, _Context(True)]
    cache_ram: Annotated[int | str, _Context(0, "-cram --cache-ram", ge=0, le=2**30, unit="MiB")]
    cache_disk: Annotated[str, _Context("", "--cache-disk", rule=_check_path)]
    cache_saved: Annotated[str, _Context("", "--slot-save-path", rule=_check_path)]
    cache_disk_limit: Annotated[float | str, _Context(16.0, "--cache-disk-limit", ge=0, le=2**20, unit="GiB")]
    memory_limit: Annotated[float | str, _Context(0.0, ge=0, le=2**20, unit="GiB")]
    max_queue: Annotated[int, _Engine(-1, ge=-1)]
    prefill_tokens: Annotated[int, _Engine(0, ge=0)]
    lookahead: Annotated[int, _Engine(-1, ge=-1)]
    speculate: Annotated[str, _Engine("auto", "--speculate")]
    n_draft: Annotated[int, _Engine(-1, ge=-1)]
    samplers: Annotated[
        Sequence[str],
        _Sampling(
            [
                "logit_bias",
                "penalties",
                "dry",
                "top_n_sigma",
                "top_k",
                "typical_p",
                "top_p",
                "min_p",
                "xtc",
                "temperature",
                "greedy",
                "mirostat",
                "adaptive_p",
                "dist",
            ],
            "--samplers",
        ),
    ]
    sampling: Annotated[Mapping[str, object], _Sampling({}, noun="a mapping of names to values")]
    chat_template: Annotated[str, _Chat("", "--chat-template")]
    mmproj: Annotated[str, _Model("", "-mm --mmproj", rule=_check_path)]
    vocoder: Annotated[str, _Model("", "-mv --vocoder --model-vocoder", rule=_check_path)]
    image_min_tokens: Annotated[int, _Model(0, "--image-min-tokens", ge=0, le=2**16)]
    image_max_tokens: Annotated[int, _Model(0, "--image-max-tokens", ge=0, le=2**16)]
    draft: Annotated[str, _Model("", "-md --draft --model-draft --spec-draft-model", rule=_check_path)]
    draft_max: Annotated[int, _Engine(8, "--draft-max --spec-draft-n-max", ge=1, le=31)]
    draft_min: Annotated[int, _Engine(0, "--draft-min --spec-draft-n-min", ge=0, le=31)]
    draft_p_min: Annotated[float, _Engine(0.25, "--draft-p-min --spec-draft-p-min", ge=0, le=1)]
    draft_n_ctx: Annotated[int, _Context(0, "-cd --ctx-size-draft", ge=0)]
    draft_n_gpu_layers: Annotated[
        int, _Device(-1, "-ngld --n-gpu-layers-draft --gpu-layers-draft --spec-draft-ngl", ge=-1)
    ]
    override_kv: Annotated[
        Mapping[str, bool | int | float | str],
        _Model({}, "--override-kv", noun="a mapping of keys to texts, numbers or booleans"),
    ]
    adapters: Annotated[Mapping[str, str | Mapping[str, object]], _Model({}, noun="a mapping of names to files")]
    models: Annotated[Mapping[str, Mapping[str, object]], _Model({})]
    sandbox: Annotated[Literal["auto", "on", "off"], _Security("auto")]
    sandbox_read: Annotated[Sequence[str], _Security([])]
    sandbox_write: Annotated[Sequence[str], _Security([])]
