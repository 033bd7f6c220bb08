"""Every option of the Python API and of the configuration: keys, types, bounds, defaults, meanings, flags, groups.

Type checkers and editors read these classes as they stand; everything else reads ``pumice.options`` at run time.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, TypedDict, Unpack

from annotated_types import Ge, Gt, Interval, Le

from pumice.errors import RequestError
from pumice.options.option import Option, documented, read_options
from pumice.wording import did_you_mean

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


class SamplingOptions(TypedDict, total=False):
    """Parameters of the samplers that come with Pumice, by the names of llama.cpp's requests."""

    temperature: Annotated[
        float,
        Ge(0),
        _Sampling(
            0.8,
            "Temperature: above 1 flattens the distribution, below 1 sharpens it; 0 selects the most probable token.",
            ("--temp", "--temperature"),
        ),
    ]
    top_k: Annotated[int, Ge(-1), _Sampling(40, "Keep the k most probable tokens; 0 or -1 keeps all.", ("--top-k",))]
    top_p: Annotated[
        float,
        Interval(ge=0, le=1),
        _Sampling(
            0.95, "Keep the most probable tokens whose probabilities add up to p; 1 keeps all tokens.", ("--top-p",)
        ),
    ]
    min_p: Annotated[
        float,
        Interval(ge=0, le=1),
        _Sampling(
            0.05, "Keep tokens at least p times as probable as the most probable one; 0 keeps all.", ("--min-p",)
        ),
    ]
    seed: Annotated[
        int,
        Ge(-1),
        _Sampling(-1, "Seed of the random numbers: the same seed gives the same text; -1 draws one.", ("-s", "--seed")),
    ]
    rng: Annotated[
        RNG, _Sampling("pcg64", "Generator of the random numbers; mt19937 gives llama.cpp's text for a seed.")
    ]
    min_keep: Annotated[
        int,
        Ge(0),
        _Sampling(0, "Minimum number of tokens that typical_p, top_p and min_p keep, and that xtc leaves."),
    ]
    typical_p: Annotated[
        float,
        Interval(ge=0, le=1),
        _Sampling(
            1.0,
            "Keep tokens whose surprise is close to the expected one, up to this probability; 1 keeps all.",
            ("--typical", "--typical-p"),
        ),
    ]
    top_n_sigma: Annotated[
        float,
        _Sampling(
            -1.0,
            "Keep logits within n standard deviations of the highest one; 0 or less keeps all.",
            ("--top-nsigma", "--top-n-sigma"),
        ),
    ]
    xtc_probability: Annotated[
        float,
        Interval(ge=0, le=1),
        _Sampling(
            0.0,
            "Probability of dropping, at a token, all but the last of the tokens above xtc_threshold (XTC).",
            ("--xtc-probability",),
        ),
    ]
    xtc_threshold: Annotated[
        float,
        Interval(ge=0, le=1),
        _Sampling(0.1, "Probability from which on XTC may drop a token; above 0.5 it is off.", ("--xtc-threshold",)),
    ]
    dynatemp_range: Annotated[
        float,
        Ge(0),
        _Sampling(
            0.0,
            "Dynamic temperature: largest distance from temperature, scaled by the entropy; 0 is off.",
            ("--dynatemp-range",),
        ),
    ]
    dynatemp_exponent: Annotated[
        float, Ge(0), _Sampling(1.0, "Exponent of the entropy in dynamic temperature.", ("--dynatemp-exp",))
    ]
    mirostat: Annotated[
        int,
        Interval(ge=0, le=2),
        _Sampling(
            0, "Version of Mirostat, which holds the surprise of the text at a target; 0 is off.", ("--mirostat",)
        ),
    ]
    mirostat_tau: Annotated[float, Ge(0), _Sampling(5.0, "Target surprise of Mirostat, in bits.", ("--mirostat-ent",))]
    mirostat_eta: Annotated[float, Ge(0), _Sampling(0.1, "Learning rate of Mirostat.", ("--mirostat-lr",))]
    adaptive_target: Annotated[
        float,
        Le(1),
        _Sampling(
            -1.0,
            "Probability near which adaptive-p chooses tokens, from 0 to 1; below 0 it is off.",
            ("--adaptive-target",),
        ),
    ]
    adaptive_decay: Annotated[
        float,
        Interval(ge=0, le=0.99),
        _Sampling(
            0.9,
            "Weight of earlier tokens in the mean that adaptive-p corrects: about 1 / (1 - decay) tokens count.",
            ("--adaptive-decay",),
        ),
    ]
    logit_bias: Annotated[
        Mapping[int, float],
        _Sampling(
            {},
            "Numbers added to the logits of tokens, by token id; -inf forbids a token.",
            noun="a mapping of token ids to numbers",
        ),
    ]
    ignore_eos: Annotated[bool, _Sampling(False, "Forbid the tokens that end a text.", ("--ignore-eos",))]
    repeat_penalty: Annotated[
        float,
        Gt(0),
        _Penalty(
            1.0,
            "Divisor of the positive logits of recent tokens, factor of negative ones; 1 is off.",
            ("--repeat-penalty",),
        ),
    ]
    repeat_last_n: Annotated[
        int,
        Ge(0),
        _Penalty(
            64, "Number of recent tokens, prompt included, that penalties consider; 0 is off.", ("--repeat-last-n",)
        ),
    ]
    frequency_penalty: Annotated[
        float,
        _Penalty(
            0.0,
            "Number subtracted from the logit of a recent token for each of its occurrences; 0 is off.",
            ("--frequency-penalty",),
        ),
    ]
    presence_penalty: Annotated[
        float,
        _Penalty(
            0.0,
            "Number subtracted once from the logit of a token that occurred recently; 0 is off.",
            ("--presence-penalty",),
        ),
    ]
    dry_multiplier: Annotated[
        float,
        Ge(0),
        _Penalty(
            0.0,
            "Strength of the penalty on tokens that would repeat an earlier sequence (DRY); 0 is off.",
            ("--dry-multiplier",),
        ),
    ]
    dry_base: Annotated[
        float, Ge(1), _Penalty(1.75, "Growth of the DRY penalty with each repeated token.", ("--dry-base",))
    ]
    dry_allowed_length: Annotated[
        int,
        Ge(0),
        _Penalty(2, "Length of a repetition up to which DRY allows it, in tokens.", ("--dry-allowed-length",)),
    ]
    dry_penalty_last_n: Annotated[
        int,
        Ge(0),
        _Penalty(64, "Number of recent tokens that DRY searches for repetitions; 0 is off.", ("--dry-penalty-last-n",)),
    ]
    dry_sequence_breakers: Annotated[
        Sequence[str],
        _Penalty(
            ["\n", ":", '"', "*"],
            "Strings at which a repetition ends for DRY: at most 64, of at most 40 characters.",
            ("--dry-sequence-breaker",),
        ),
    ]


SAMPLING = read_options(SamplingOptions)


@dataclass(frozen=True, init=False, repr=False)
class SamplingParams:
    """Parameters of the samplers, to keep and to share: ``model.generate(prompt, sampling=params)``.

    None leaves a parameter as configured. ``dataclasses.replace`` makes a variant.

    Attributes:
        extra: Parameters of samplers from other plugins, by name.
    """

    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    seed: int | None
    rng: RNG | None
    min_keep: int | None
    typical_p: float | None
    top_n_sigma: float | None
    xtc_probability: float | None
    xtc_threshold: float | None
    dynatemp_range: float | None
    dynatemp_exponent: float | None
    mirostat: int | None
    mirostat_tau: float | None
    mirostat_eta: float | None
    adaptive_target: float | None
    adaptive_decay: float | None
    logit_bias: Mapping[int, float] | None
    ignore_eos: bool | None
    repeat_penalty: float | None
    repeat_last_n: int | None
    frequency_penalty: float | None
    presence_penalty: float | None
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_penalty_last_n: int | None
    dry_sequence_breakers: Sequence[str] | None
    extra: Mapping[str, object]

    @documented(SAMPLING)
    def __init__(self, *, extra: Mapping[str, object] | None = None, **options: Unpack[SamplingOptions]) -> None:
        """Check and keep the parameters.

        Args:
            extra: Parameters of samplers from other plugins, by name; they are checked when they are used.

        Raises:
            RequestError: A name is unknown, or a value is of a wrong type or out of bounds.
        """
        for name, value in options.items():
            if name not in SAMPLING:
                hint = did_you_mean(name, SAMPLING) or "; parameters of other samplers belong into extra"
                raise RequestError(f"unknown sampling parameter {name!r}{hint}")
            if value is not None:
                SAMPLING[name].check(value)
        for name in SAMPLING:
            object.__setattr__(self, name, options.get(name))
        object.__setattr__(self, "extra", dict(extra or {}))

    def __repr__(self) -> str:
        """Show the parameters that are set, as Python."""
        values = {name: value for name, value in self.to_dict().items() if name not in self.extra}
        extra = {"extra": self.extra} if self.extra else {}
        return f"SamplingParams({', '.join(f'{name}={value!r}' for name, value in {**values, **extra}.items())})"

    def to_dict(self) -> dict[str, object]:
        """Return the parameters that are set, by name, with ``extra``."""
        values = {name: getattr(self, name) for name in SAMPLING}
        return {**{name: value for name, value in values.items() if value is not None}, **self.extra}


class OutputOptions(TypedDict, total=False):
    """The format of the text; at most one of the first four."""

    grammar: Annotated[str | None, _Output(None, "Grammar of the text, in GBNF or Lark.", ("--grammar",))]
    json_schema: Annotated[
        Mapping[str, object] | str | bool | type | None,
        _Output(
            None,
            "JSON schema of the text: a mapping, JSON text, or a pydantic class.",
            ("-j", "--json-schema"),
        ),
    ]
    regex: Annotated[str | None, _Output(None, "Regular expression that the text matches.", ("--regex",))]
    choices: Annotated[Sequence[str] | None, _Output(None, "Texts, one of which is generated.")]
    json_whitespace: Annotated[bool, _Output(False, "Allow indented JSON, which is compact otherwise.")]
    grammar_triggers: Annotated[
        Sequence[str] | None,
        _Output(
            None,
            "Texts from the first of which on the grammar applies; the text before is free.",
            noun="a list of texts",
        ),
    ]


class RequestOptions(TypedDict, total=False):
    """Options of one request beside its prompt, its samplers' parameters, and the format of its text."""

    max_tokens: Annotated[
        int | None,
        Ge(-1),
        _Text(
            128,
            "Maximum number of tokens to generate; None or -1: until the model ends the text or the context is full.",
            ("-n", "--predict", "--n-predict"),
            noun="an integer",
        ),
    ]
    min_tokens: Annotated[
        int,
        Ge(0),
        _Text(
            0,
            "Minimum number of tokens before an end token or a stop string ends the text; a grammar may end earlier.",
        ),
    ]
    stop: Annotated[
        str | Sequence[str] | None,
        _Text(
            None,
            "One or several strings that end the text and are left out of it.",
            ("-r", "--reverse-prompt", "--stop"),
        ),
    ]
    stop_tokens: Annotated[
        Collection[int],
        _Text((), "Token ids that end the text and are left out of it.", noun="a list of token ids"),
    ]
    special: Annotated[
        Collection[int],
        _Text((), "Ids of control tokens that appear as text in the output.", noun="a list of token ids"),
    ]
    samplers: Annotated[
        Sequence[str] | None,
        _Sampling(
            None,
            "Names of the chain's samplers, first to last; None: the configured chain.",
            ("--samplers",),
            noun="a list of names",
        ),
    ]
    logprobs: Annotated[
        int | None,
        Ge(0),
        _Text(
            None,
            "Return the log-probability of each token, and of this many of the most probable tokens.",
            noun="an integer",
        ),
    ]
    logprobs_sampled: Annotated[
        bool, _Text(False, "Take log-probabilities after the sampler chain, not those of the model.")
    ]
    n_ctx: Annotated[
        int | None,
        Ge(1),
        _Request(
            None, "Maximum number of positions of this sequence; None allows those of the model.", noun="an integer"
        ),
    ]
    context_shift: Annotated[
        bool, _Request(False, "Drop the older half of a full context and continue.", ("--context-shift",))
    ]
    timeout: Annotated[
        float | None,
        Ge(0),
        _Request(None, "Request timeout in seconds, including time in the queue.", noun="a number of seconds"),
    ]
    newline_timeout: Annotated[
        float | None,
        Ge(0),
        _Request(
            None,
            "Seconds after the first token from which on the next newline ends the text.",
            noun="a number of seconds",
        ),
    ]
    priority: Annotated[
        int,
        _Request(
            0, "Requests with a higher priority run first; after 30 seconds in the queue a request runs next anyway."
        ),
    ]
    cache_salt: Annotated[
        str, _Request("", "Requests share cached prefixes only with requests that have the same salt.")
    ]
    speculate: Annotated[
        str | bool | None,
        _Request(
            None,
            "Speculative decoding: auto or True, off or False, or names of proposers with commas between; None as "
            "configured. Changes speed only, except that float matrices may round differently.",
        ),
    ]
    n_draft: Annotated[
        int | None,
        Ge(0),
        _Request(None, "Maximum number of drafted tokens per batch; 0: none; None: that of the configuration."),
    ]
    prediction: Annotated[
        str | None,
        _Request(
            None,
            "Text that the answer is expected to resemble, such as the file to edit, whose tokens are drafts unless "
            "speculate is off. Changes speed only, like speculate.",
        ),
    ]
    request_id: Annotated[str, _Request("", "Name of the request in logs.")]
    adapters: Annotated[
        Mapping[str, float] | None,
        _Request(
            None,
            "Scale of each adapter by name, 0 for those left out; None as configured.",
            noun="a mapping of names to numbers",
        ),
    ]
    diffusion_steps: Annotated[
        int | None,
        Ge(1),
        _Diffusion(
            None,
            "Denoising steps (diffusion models only); None is one per token.",
            ("--diffusion-steps",),
            noun="an integer",
        ),
    ]
    diffusion_algorithm: Annotated[
        Algorithm,
        _Diffusion("confidence", "Order in which a diffusion model fills positions.", ("--diffusion-algorithm",)),
    ]
    block_length: Annotated[
        int | None,
        Ge(1),
        _Diffusion(
            None,
            "Tokens that a diffusion model fills before it turns to the following ones; None fills all at once.",
            ("--diffusion-block-length",),
            noun="an integer",
        ),
    ]
    cfg_scale: Annotated[
        float,
        Interval(ge=-1e6, le=1e6),
        _Diffusion(
            0.0,
            "Classifier-free guidance of a diffusion model: how strongly the prompt counts; 0 is off.",
            ("--diffusion-cfg-scale",),
        ),
    ]


class GenerateOptions(RequestOptions, OutputOptions, SamplingOptions, total=False):
    """Keywords of ``Model.generate``, ``stream`` and their like."""

    sampling: Annotated[
        SamplingParams | Mapping[str, object],
        _Sampling(
            {},
            "Parameters of samplers as one object; keywords take precedence. "
            "A mapping may have parameters of samplers from other plugins.",
            noun="SamplingParams or a mapping of names to values",
        ),
    ]


class CountedOptions(GenerateOptions, total=False):
    """Keywords of ``Model.request``."""

    n: Annotated[
        int,
        Interval(ge=1, le=MAX_COMPLETIONS),
        _Text(1, "Number of completions; the prompt is read once, and each seed is higher by one."),
    ]


class TemplateOptions(TypedDict, total=False):
    """Options of a chat template and of the parser of its answers."""

    tools: Annotated[
        Sequence[object],
        _Chat(
            (),
            "Tools that the model may call: Python functions, or descriptions as in OpenAI's chat completions.",
            noun="a list",
        ),
    ]
    tool_choice: Annotated[
        str | Mapping[str, object],
        _Chat(
            "auto",
            '"auto" lets the model decide, "none" hides the tools, "required" demands a call; the name of a tool, or '
            "an object of chat completions, demands a call of that tool.",
        ),
    ]
    parallel_tool_calls: Annotated[bool, _Chat(True, "Allow several calls in one answer.")]
    response_format: Annotated[
        Mapping[str, object] | None,
        _Chat(None, 'Format of the answer, as in chat completions: type "text", "json_object" or "json_schema".'),
    ]
    chat_template: Annotated[
        str | None,
        _Chat(
            None,
            "Name of a chat template, or its text in Jinja; None: the model's.",
            ("--chat-template",),
        ),
    ]
    template_variables: Annotated[
        Mapping[str, object],
        _Chat({}, "Further variables of the chat template.", ("--chat-template-kwargs",), noun="an object"),
    ]
    continue_final_message: Annotated[
        bool | None,
        _Chat(None, "Continue the last message instead of adding one; None does so if it is the assistant's."),
    ]
    add_generation_prompt: Annotated[bool, _Chat(True, "Begin a message of the assistant at the end of the prompt.")]
    reasoning: Annotated[
        bool | None,
        _Reasoning(None, "Switch reasoning on or off; None leaves it to the template.", ("-rea", "--reasoning")),
    ]
    reasoning_effort: Annotated[
        str | None,
        _Reasoning(
            None,
            'Effort for templates that know it: "low", "medium" or "high"; "none" switches reasoning off.',
            ("--reasoning-effort",),
        ),
    ]
    reasoning_budget: Annotated[
        int | None,
        Ge(0),
        _Reasoning(
            None,
            "Maximum number of reasoning tokens, after which the answer follows; None is unlimited.",
            ("--reasoning-budget",),
            noun="a number of tokens",
        ),
    ]
    reasoning_budget_message: Annotated[
        str,
        _Reasoning("", "Text that ends the reasoning when its budget is spent.", ("--reasoning-budget-message",)),
    ]
    separate_reasoning: Annotated[
        bool, _Reasoning(True, "Return reasoning apart from the content; False leaves it there with its marks.")
    ]


class ChatOptions(TemplateOptions, GenerateOptions, total=False):
    """Keywords of ``Model.chat``, ``chat_stream`` and their like."""


class EngineOptions(TypedDict, total=False):
    """Keywords of ``pumice.load`` and keys of the configuration; a key that is missing here is a backend's section."""

    backend: Annotated[
        str,
        _Device("auto", "Name of the backend; auto: the first available one of `backends`.", ("--backend",)),
    ]
    backends: Annotated[
        Sequence[str],
        _Device(
            ["mlx", "vulkan", "cpu", "numpy"],
            "Order in which auto tries backends, without those that are not installed. Operations that a backend does "
            "not support run on the next one.",
        ),
    ]
    n_gpu_layers: Annotated[
        int,
        Ge(-1),
        _Device(
            -1,
            "Number of layers on a GPU backend, counted from the last; -1: all.",
            ("-ngl", "--n-gpu-layers", "--gpu-layers"),
        ),
    ]
    devices: Annotated[
        Sequence[str],
        _Device(
            [],
            "GPUs to use, such as Vulkan0, in the order of their layers; none: no GPU; empty: as the backend's section "
            "says.",
            ("-dev", "--device"),
        ),
    ]
    split_mode: Annotated[
        Literal["auto", "none", "layer"],
        _Device(
            "auto",
            "Use of several GPUs: layer splits the layers over all of devices (by default every GPU), none uses "
            "main_gpu alone, auto what devices or the backend's section name.",
            ("-sm", "--split-mode"),
        ),
    ]
    main_gpu: Annotated[
        int, Ge(0), _Device(0, "Number of the GPU that split_mode none uses, among devices.", ("-mg", "--main-gpu"))
    ]
    tensor_split: Annotated[
        Sequence[float],
        _Device(
            [],
            "Share of the layers for each GPU, such as 3,1; empty: in proportion to free memory.",
            ("-ts", "--tensor-split"),
            noun="a list of numbers",
        ),
    ]
    override_tensors: Annotated[
        Sequence[str],
        _Device(
            [],
            "REGEX=DEVICE: tensors whose names match are placed on a device, CPU or Vulkan0, which computes with them. "
            "The first match counts.",
            ("-ot", "--override-tensor"),
        ),
    ]
    n_cpu_moe: Annotated[
        int,
        Ge(-1),
        _Device(
            0,
            "Number of first layers whose experts stay in host memory and are computed by the CPU; -1: all layers.",
            ("-ncmoe", "--n-cpu-moe"),
        ),
    ]
    n_cpu_ffn: Annotated[
        int,
        Ge(-1),
        _Device(
            0,
            "Number of first layers whose dense feed-forward matrices stay in host memory; -1: all layers.",
            ("-ncffn", "--n-cpu-ffn"),
        ),
    ]
    moe_in_place: Annotated[
        Literal["auto", "on", "off"],
        _Device(
            "auto",
            "Let a GPU read the experts that stay in host memory there and compute them, instead of the CPU: auto "
            "where measured rates predict that it is faster.",
            ("--moe-in-place",),
        ),
    ]
    measure_rates: Annotated[
        bool,
        _Device(
            False,
            "Measure devices without measured rates before a model is placed that GPUs have no room for, some seconds "
            "once a machine. Commands do unless the configuration says False.",
        ),
    ]
    kv_offload: Annotated[
        bool, _Device(True, "Keep the key/value cache of layers on a GPU there; False keeps it in host memory.")
    ]
    mmap: Annotated[
        bool, _Device(True, "Map the model's file into memory; False reads it into memory that is the process's own.")
    ]
    mlock: Annotated[
        bool,
        _Device(False, "Lock the weights that host memory holds, so that they are never swapped out.", ("--mlock",)),
    ]
    numa: Annotated[
        Literal["off", "distribute", "isolate", "numactl"],
        _Device(
            "off",
            "On machines with several memory nodes: distribute interleaves what loading allocates over all nodes, "
            "isolate stays on the node where loading began, numactl leaves both to numactl.",
            ("--numa",),
        ),
    ]
    fit: Annotated[
        bool,
        _Device(
            True,
            "Place only as many layers on GPUs as memory has room for, and lower a context of 0; otherwise place what "
            "the other options say, and fail if memory runs out.",
            ("-fit", "--fit"),
        ),
    ]
    fit_target: Annotated[
        int | str,
        Interval(ge=0, le=2**20),
        _Device(
            0,
            "Memory of each GPU that fit leaves free for other programs: in MiB, or with a unit such as 2GiB.",
            ("-fitt", "--fit-target"),
            unit="MiB",
        ),
    ]
    fit_ctx: Annotated[
        int,
        Ge(1),
        _Device(4096, "Tokens below which fit does not lower a context of 0.", ("-fitc", "--fit-ctx")),
    ]
    n_ctx: Annotated[
        int,
        Ge(0),
        _Context(
            0,
            "Context in tokens, shared by the sequences computed at once. 0: what the model was trained for, for each "
            "sequence, as far as memory has room.",
            ("-c", "--ctx-size", "--n-ctx"),
        ),
    ]
    cache_share: Annotated[
        float,
        Interval(gt=0, le=1),
        _Context(
            1.0,
            "Share of the memory free beside the model that the key/value cache of a context of 0 may take; of host "
            "memory it takes at most half of that. pumice serve divides it among several models.",
            ("--cache-share",),
        ),
    ]
    n_batch: Annotated[
        int, Ge(1), _Context(512, "Maximum number of tokens in a batch.", ("-b", "--batch-size", "--n-batch"))
    ]
    n_parallel: Annotated[
        int,
        Ge(1),
        _Context(4, "Maximum number of sequences in a batch; they share the context.", ("-np", "--parallel")),
    ]
    kv_type: Annotated[KVType, _Context("f16", "Type of the key/value cache.", ("-ctk", "--cache-type-k", "--kv-type"))]
    kv_rotate: Annotated[
        bool,
        _Context(
            True,
            "Rotate keys and values by Hadamard matrices before they are quantized, which makes a quantized key/value "
            "cache more accurate.",
        ),
    ]
    cache_ram: Annotated[
        int | str,
        Interval(ge=0, le=2**30),
        _Context(
            0,
            "Host memory for prompts that leave the key/value cache, from which they are loaded again: in MiB, or with "
            "a unit such as 8GiB; 0: none.",
            ("-cram", "--cache-ram"),
            unit="MiB",
        ),
    ]
    cache_disk: Annotated[
        str,
        _Context(
            "",
            "Folder for prompts, which later processes of the same user load from there; empty: none.",
            ("--cache-disk",),
        ),
    ]
    cache_saved: Annotated[
        str,
        _Context(
            "",
            "Folder for the caches of prompts that are saved one by one, unless cache_disk keeps all; empty: none. "
            "pumice serve --slot-save-path sets it.",
        ),
    ]
    cache_disk_limit: Annotated[
        float | str,
        Interval(ge=0, le=2**20),
        _Context(
            16.0,
            "Maximum size of the folder of cache_disk or cache_saved: in GiB, or with a unit such as 500MiB. "
            "Entries that save least time for their size are deleted first.",
            ("--cache-disk-limit",),
            unit="GiB",
        ),
    ]
    memory_limit: Annotated[
        float | str,
        Interval(ge=0, le=2**20),
        _Context(
            0.0,
            "Maximum memory of an engine's process, without the mapped model file (Linux): in GiB, or with a unit such "
            "as 500MiB; 0: unlimited.",
            unit="GiB",
        ),
    ]
    max_queue: Annotated[
        int,
        Ge(-1),
        _Engine(-1, "Maximum number of waiting requests; further ones are refused (QueueFullError). -1: unlimited."),
    ]
    max_delay: Annotated[
        float,
        Ge(0),
        _Engine(
            0.0,
            "Seconds of a batch that prompts may use while other sequences generate; 0: 0.05 on a GPU; "
            "elsewhere 0.1 beside up to 4 sequences, and up to 0.2 beside 8 and more.",
        ),
    ]
    lookahead: Annotated[
        int,
        Ge(-1),
        _Engine(
            -1,
            "Maximum number of tokens in a row that a device picks before the host looks at them; 0: none; -1: as many "
            "as 20 milliseconds allow. Changes speed only.",
        ),
    ]
    speculate: Annotated[
        str,
        _Engine(
            "auto",
            "Speculative decoding: auto, off, or names of proposers with commas between. Changes speed only, except "
            "that float matrices may round differently; auto drafts only where they do not.",
            ("--speculate",),
        ),
    ]
    n_draft: Annotated[
        int,
        Ge(-1),
        _Engine(
            -1,
            "Number of drafted tokens per sequence that a batch verifies; 0: none; -1: as many as are expected to save "
            "time, 15 at most.",
        ),
    ]
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
            "The sampler chain, first to last.",
            ("--samplers",),
        ),
    ]
    sampling: Annotated[
        SamplingParams | Mapping[str, object],
        _Sampling({}, "Default parameters of the samplers.", noun="SamplingParams or a mapping of names to values"),
    ]
    chat_template: Annotated[
        str,
        _Chat(
            "",
            "Name of a chat template, or its text in Jinja; empty: the template in the model's file.",
            ("--chat-template",),
        ),
    ]
    mmproj: Annotated[
        str,
        _Model(
            "",
            "Projector (mmproj*.gguf) for images and sounds, read with the first of them; empty: the one beside the "
            "model; off: none.",
            ("-mm", "--mmproj"),
        ),
    ]
    vocoder: Annotated[
        str,
        _Model(
            "",
            "Vocoder (*wavtokenizer*.gguf) of a model that speaks; empty: the one beside the model; off: none.",
            ("-mv", "--vocoder", "--model-vocoder"),
        ),
    ]
    image_min_tokens: Annotated[
        int,
        Interval(ge=0, le=2**16),
        _Model(
            0,
            "Fewest tokens of an image, for encoders of any image size; 0: as the projector says.",
            ("--image-min-tokens",),
        ),
    ]
    image_max_tokens: Annotated[
        int,
        Interval(ge=0, le=2**16),
        _Model(
            0,
            "Most tokens of an image, for encoders of any image size; 0: as the projector says.",
            ("--image-max-tokens",),
        ),
    ]
    draft: Annotated[
        str,
        _Model(
            "",
            "File or folder of a model that drafts tokens for this one: any smaller model, best with the same "
            "vocabulary, or layers that read this model's caches and weights.",
            ("-md", "--draft", "--model-draft", "--spec-draft-model"),
        ),
    ]
    draft_max: Annotated[
        int,
        Interval(ge=1, le=31),
        _Engine(
            8,
            "Maximum number of tokens that the draft model proposes per batch.",
            ("--draft-max", "--spec-draft-n-max"),
        ),
    ]
    draft_min: Annotated[
        int,
        Interval(ge=0, le=31),
        _Engine(
            0,
            "Minimum number of tokens of the draft model's proposals; shorter ones are dropped.",
            ("--draft-min", "--spec-draft-n-min"),
        ),
    ]
    draft_p_min: Annotated[
        float,
        Interval(ge=0, le=1),
        _Engine(
            0.25,
            "Minimum probability of a token in the draft model; a less probable one ends the proposal.",
            ("--draft-p-min", "--spec-draft-p-min"),
        ),
    ]
    draft_n_ctx: Annotated[
        int,
        Ge(0),
        _Context(
            0,
            "Context of the draft model in tokens, shared by the sequences computed at once; 0: that of the model.",
            ("-cd", "--ctx-size-draft"),
        ),
    ]
    draft_n_gpu_layers: Annotated[
        int,
        Ge(-1),
        _Device(
            -1,
            "Number of the draft model's layers on a GPU backend, counted from the last; -1: all.",
            ("-ngld", "--n-gpu-layers-draft", "--gpu-layers-draft", "--spec-draft-ngl"),
        ),
    ]
    override_kv: Annotated[
        Mapping[str, bool | int | float | str],
        _Model(
            {},
            "Metadata to use instead of that in the model's file, by key; `*.` at the beginning of a key stands for "
            "the architecture.",
            ("--override-kv",),
            noun="a mapping of keys to texts, numbers or booleans",
        ),
    ]
    adapters: Annotated[
        Mapping[str, str | Mapping[str, object]],
        _Model(
            {},
            "LoRA adapters and control vectors: a name for each, and its file or a mapping of file, scale and layers.",
            noun="a mapping of names to files",
        ),
    ]
    models: Annotated[
        Mapping[str, Mapping[str, object]],
        _Model({}, "Names of models and their options, over those of the catalogue."),
    ]
    sandbox: Annotated[
        Literal["auto", "on", "off"],
        _Security(
            "auto",
            "Confine engine processes: auto as far as the system can, on or not start them at all, off never.",
        ),
    ]
    sandbox_read: Annotated[Sequence[str], _Security([], "Further files and folders that a confined engine may read.")]
    sandbox_write: Annotated[
        Sequence[str], _Security([], "Further existing folders that a confined engine may write to.")
    ]
