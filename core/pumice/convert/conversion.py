"""`Conversion`: the conversion of a model family's checkpoints to GGUF, which a plugin provides."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from pumice.convert.flags import check_flags
from pumice.convert.folder import Folder
from pumice.convert.lazy import LazyTensor, stack
from pumice.convert.names import TensorNames
from pumice.convert.parameters import (
    INTEGERS,
    N_LAYER,
    KeyNames,
    number,
    parameters,
    sliding_layers,
)
from pumice.convert.quantized import dequantized
from pumice.convert.vocabulary.tokens import added_ids
from pumice.errors import ConvertError
from pumice.gguf import GGMLType
from pumice.tokenizers import PRE_TOKENIZERS, PreTokenizer

logger = logging.getLogger("pumice")

# Tensors of vision and audio parts, which a language model does not use.
OTHER_SENSES = re.compile(
    r"^(mlp|vit\.|vpm\.|siglip2\.|conformer\.|merger\.|resampler\.|sound_encoder\.|sound_projection\.)"
    r"|^(speech_embeddings|speech_encoder|speech_audio_adapter|ln_speech)\."
    r"|visual\.|vision[._]|audio[._]|talker\.|token2wav\.|code2wav\.|projector\.|pre_mm_projector_norm|image_newline"
    r"|view_seperator|patch_embed|patch_merger\.|patch_merge_mlp\.|model\.connector\."
)
COMPUTED = (".attention.masked_bias", ".attention.bias", ".rotary_emb.inv_freq")  # stored, but not weights
MOST_LAYERS = 1024  # the largest published models have an eighth as many
MOST_HEAD_DIM = 1 << 16  # values; the largest heads of published models have a hundredth as many
QUERIES = ("q_proj.weight", "q_proj.bias")
KEYS = ("k_proj.weight", "k_proj.bias")
EXPERT = re.compile(r"^(.*experts)\.(\d+)\.(.+)$")

# Tensors that stay in float32: small ones, and those that matrix products do not read in fewer bits.
FLOAT32 = frozenset({
    "ffn_gate_inp", "ffn_gate_inp_shexp", "position_embd", "token_types", "ssm_conv1d", "ssm_conv1d_q", "ssm_conv1d_k",
    "ssm_conv1d_v", "shortconv.conv", "time_mix_first", "time_mix_w1", "time_mix_w2", "time_mix_decay_w1",
    "time_mix_decay_w2", "time_mix_lerp_fused", "altup_correct_coef", "altup_predict_coef", "indexer.proj",
})  # fmt: skip


class Conversion:
    """The conversion of one Hugging Face model class, registered under its name, such as ``LlamaForCausalLM``.

    A subclass sets ``architecture`` and the tables in which its family differs, and overrides methods for the rest.
    """

    architecture: str
    vocabularies: ClassVar[Sequence[str]] = ["bpe"]
    """Kinds of tokenizers, tried in order."""
    pre_tokenizers: ClassVar[Sequence[str]] = []
    """Pre-tokenizers that are preferred among those that split text into the same words."""
    special_tokens: ClassVar[Mapping[str, str]] = {}
    """Special tokens that the folder does not name: name in GGUF (``eot``) -> the token's text."""
    control_tokens: tuple[str, ...] = ()
    """Texts of control tokens that the tokenizer does not mark as such."""
    n_vocab_multiple = 1
    """The number of tokens is rounded up to a multiple of this."""

    integers: ClassVar[Mapping[str, KeyNames]] = {}
    """Further integer hyperparameters: GGUF's key -> its names in ``config.json``."""
    numbers: ClassVar[Mapping[str, KeyNames]] = {}
    flags: ClassVar[Mapping[str, KeyNames]] = {}
    constants: ClassVar[Mapping[str, Any]] = {}
    """Hyperparameters that are not in ``config.json``."""
    computed: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """Hyperparameters that follow from others: GGUF's key -> a function of the conversion."""
    hidden_act: ClassVar[str] = "silu"
    """The activation of feed-forward blocks, as ``config.json`` names it; empty if it is not checked."""
    needed: ClassVar[Mapping[str, Any]] = {}
    """Keys of ``config.json`` that may have one value, which the family's graph takes for granted, or be missing."""
    required: tuple[str, ...] = ()
    """Keys that ``config.json`` must have, since transformers and the family's graph have different defaults."""
    required_of_experts: tuple[str, ...] = ()
    """Keys that it must have, too, if the model has experts."""
    inner_eps: float | None = None
    """Epsilon of the norms within blocks, if it is not the one in ``config.json``."""
    implied: ClassVar[Mapping[str, Any]] = {}
    """Hyperparameters that are omitted if they have this value, which the family's graph takes for granted."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Values of hyperparameters that ``config.json`` may omit."""
    without: tuple[str, ...] = ()
    """Prefixes of keys that are omitted although ``config.json`` has values for them."""

    named_as = ""
    """Architecture with the same tensor names, if the package ``gguf`` does not know this one."""
    more_names: ClassVar[Mapping[str, str]] = {}
    """Tensor names that the package ``gguf`` does not know, without suffix; ``{}`` stands for the layer."""
    window_period = 0
    """The last of each so many layers has no sliding window; files list the layers' windows only if they differ."""
    n_draft_name = ""
    """Name in ``config.json`` of the number of draft layers, which follow the others."""
    drops_tied_output = False
    """True if a stored output matrix is omitted when it is tied to the embeddings."""
    renames: ClassVar[Mapping[str, str]] = {}
    """Replacements in tensor names: regular expression -> replacement."""
    joined: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Tensors whose rows are those of several, equally many of each: part of the name -> what it is in their names."""
    changes: ClassVar[Mapping[str, Callable[[LazyTensor], LazyTensor]]] = {}
    """Changes of tensors, before ``convert``: end of the normalized name -> function of the tensor."""
    interleaves = False
    """True if rows of queries and keys are halves of each head, which become pairs."""
    n_interleaved = 0
    """Number of the first rows of each head of which that is so; 0 for all."""
    dropped: tuple[str, ...] = ()
    """Prefixes of the names of tensors that are not converted."""
    unused: tuple[str, ...] = ()
    """Parts of the names of further tensors that are not converted."""
    float32: Collection[str] = FLOAT32
    """Tensors that stay in float32, by their GGUF names without layer and suffix."""
    types: ClassVar[Mapping[str, GGMLType]] = {}
    """Types of tensors regardless of their form: regular expression that finds GGUF names -> type."""
    keeps_types = False
    """True if matrices keep the checkpoint's float32 or bfloat16, whatever the file's type."""
    is_draft = False
    """True for a draft model, which has the tokenizer of its target model and needs that model's folder."""
    has_vocabulary = True
    """True if the file has the keys of a tokenizer."""
    target: Conversion | None = None
    """For a draft model: the conversion of its target model."""
    known_pre_tokenizers: Mapping[str, PreTokenizer] = PRE_TOKENIZERS
    """Pre-tokenizers by name, built-in and from plugins, one of which a byte-level BPE tokenizer must match."""
    n_rows = 0
    """Rows of the token embeddings; 0 before the tensors are converted, or without any."""

    @classmethod
    def recognises(cls, folder: Folder) -> bool:
        """Return True if a folder without ``config.json`` belongs to this class."""
        return False

    @classmethod
    def made_for(cls, folder: Folder) -> Conversion:
        """Return the conversion of a folder; override it if several families share one class name."""
        return cls(folder)

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.config = folder.config
        self.check_config()
        self.n_layer = self.config.need(*N_LAYER, most=MOST_LAYERS)

    def check_config(self) -> None:
        """Raise ConvertError if the configuration has a value that the family's graph does not have."""
        c = self.config
        for key in self.required_keys():
            if key not in (c.whole_rope if key == "rope_theta" else c):
                raise ConvertError(f"{c.path}: {key!r} is missing")
        if self.hidden_act:
            c.expect_activation(self.hidden_act)
        for key, value in self.needed.items():
            c.expect(key, value)

    def required_keys(self) -> tuple[str, ...]:
        """Return the keys that ``config.json`` of this model must have."""
        has_experts = self.config.first(*INTEGERS["expert_count"])
        return (*self.required, *self.required_of_experts) if has_experts else self.required

    @property
    def target_conversion(self) -> Conversion:
        """The conversion of the target model. Raises ConvertError if it is not given."""
        if self.target is None:
            raise ConvertError(
                f"{self.folder.path}: this is a draft model; give the folder of its target model with --target"
            )
        return self.target

    @property
    def n_draft(self) -> int:
        """Number of draft layers, which follow the other layers in the file."""
        is_set = self.n_draft_name and self.config.first(self.n_draft_name) is not None
        return self.config.need(self.n_draft_name, least=0, most=MOST_LAYERS) if is_set else 0

    @property
    def head_dim(self) -> int:
        """Values per attention head."""
        c = self.config
        n = c.need("head_dim") if c.first("head_dim") else c.need("hidden_size") // c.need("num_attention_heads")
        if n > MOST_HEAD_DIM:
            raise ConvertError(f"{c.path}: a head dimension of {n} exceeds the limit of {MOST_HEAD_DIM}")
        return n

    def n_rot(self, part: float = 1.0) -> int:
        """Return the values per head that RoPE rotates; ``part`` of all if ``config.json`` does not tell."""
        return int(self.head_dim * float(self.config.whole_rope.get("partial_rotary_factor", part)))

    def metadata(self) -> dict[str, Any]:
        """Return hyperparameters by GGUF key without the architecture's prefix; integers become u32, floats f32."""
        c = self.config
        values = {**self.defaults, **parameters(c), "block_count": self.n_layer + self.n_draft}
        values |= {key: c.counts(*_tuple(names)) for key, names in self._said(self.integers)}
        values |= {key: number(c, *_tuple(names)) for key, names in self._said(self.numbers)}
        values |= {key: bool(c.first(*_tuple(names))) for key, names in self._said(self.flags)}
        if self.inner_eps not in (None, values.get("attention.layer_norm_rms_epsilon")):
            values["attention.inner_norm_rms_epsilon"] = self.inner_eps
        if self.n_draft_name and c.first(self.n_draft_name) is not None:
            values["nextn_predict_layers"] = self.n_draft
        slides, last = sliding_layers(c), self.window_period - 1
        if self.window_period and slides != [i % self.window_period < last for i in range(len(slides))]:
            values["attention.sliding_window_pattern"] = slides
        values = {
            key: value for key, value in values.items()
            if not key.startswith(self.without) and (key not in self.implied or value != self.implied[key])
        }  # fmt: skip
        return values | {key: compute(self) for key, compute in self.computed.items()} | dict(self.constants)

    def _said(self, table: Mapping[str, KeyNames]) -> Iterator[tuple[str, KeyNames]]:
        return ((key, names) for key, names in table.items() if self.config.first(*_tuple(names)) is not None)

    def other_metadata(self) -> dict[str, Any]:
        """Return further metadata by full GGUF key, such as the tokenizer's."""
        return {}

    def steering_tokens(self) -> Mapping[int, str]:
        """Return control tokens by id that the tokenizer's files do not have."""
        return {}

    @cached_property
    def added_ids(self) -> dict[str, int]:
        """Ids by text of the tokens added to the vocabulary."""
        return added_ids(self.folder)

    def n_vocab(self, n_tokens: int) -> int:
        """Return the number of tokens in the file, one per row of the embeddings.

        Args:
            n_tokens: number of the tokenizer's tokens, used if ``config.json`` has no ``vocab_size``.
        """
        size = -(-self.config.n_vocab(n_tokens) // self.n_vocab_multiple) * self.n_vocab_multiple
        if size < self.n_rows:
            logger.warning("%s: %d tokens, but the embeddings have %d rows; the additional tokens are marked as unused",
                           self.config.path, size, self.n_rows)  # fmt: skip
        return max(size, self.n_rows)

    def tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        """Yield all tensors with their GGUF names."""
        for name, tensor in self.more_tensors():
            if 0 in tensor.shape:
                raise ConvertError(f"{self.folder.path}: {name} would have no values: sizes in config.json do not fit")
            yield name, tensor
        for name, tensor in self._joined():
            yield from self.converted(name, tensor)

    def converted(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        """Like ``convert``, but raise ConvertError for a tensor whose shape does not fit the configuration."""
        try:
            for part_name, part in _split(self.joined, name, tensor):
                for own_name, value in self.convert(part_name, self._changed(part_name, part)):
                    if not value.shape or (0 in value.shape and 0 not in tensor.shape):
                        raise ValueError(f"{own_name} would have no {'values' if value.shape else 'dimensions'}")
                    yield own_name, value
        except (ValueError, IndexError) as error:  # also of NumPy, about shapes
            raise ConvertError(
                f"{self.folder.path}: tensor {name!r} {list(tensor.shape)} does not fit the configuration: {error}"
            ) from None

    def _changed(self, name: str, tensor: LazyTensor) -> LazyTensor:
        for ending, change in self.changes.items():
            if name.endswith(ending):
                tensor = change(tensor)
        if not self.interleaves or not name.endswith(QUERIES + KEYS):
            return tensor
        n_head = self.config.need("num_attention_heads", "n_heads")
        n_head_kv = self.config.first("num_key_value_heads", "n_kv_heads") or n_head
        return tensor.interleave_rope(n_head if name.endswith(QUERIES) else n_head_kv, self.n_interleaved)

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        """Yield tensors that the checkpoint does not have, such as factors of rotary frequencies."""
        yield from ()

    def rename(self, name: str) -> str | None:
        """Return a tensor's normalized name, or None if it is not converted. Raises ConvertError."""
        if OTHER_SENSES.search(name) or name.endswith(COMPUTED) or name.startswith(self.dropped):
            return None
        check_flags(self.config, name)
        if self.drops_tied_output and name.endswith("lm_head.weight") and self.config.get("tie_word_embeddings"):
            return None
        name = name.replace("e_score_correction_bias", "e_score_correction.bias").replace("language_model.", "")
        for part, new in self.renames.items():
            name = re.sub(part, new, name)
        return name

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        """Yield the GGUF names and values that one tensor of the checkpoint becomes."""
        yield self.names(name), tensor

    def forced_type(self, name: str, type: GGMLType) -> GGMLType | None:
        """Return the type of a tensor regardless of its form; None for the usual rules. ``type``: of matrices."""
        return next((own for pattern, own in self.types.items() if re.search(pattern, name)), None)

    @cached_property
    def names(self) -> TensorNames:
        """The translation from checkpoint names to GGUF names."""
        n = self.n_layer + self.n_draft
        if n > MOST_LAYERS:
            raise ConvertError(f"{self.config.path}: {n} layers exceed the limit of {MOST_LAYERS}")
        return TensorNames(self.named_as or self.architecture, n, self.more_names)

    def checkpoint(self) -> dict[str, LazyTensor]:
        """Return the checkpoint's tensors by their names there, dequantized if necessary."""
        return dequantized(self.config, self.folder.tensors)

    def _joined(self) -> Iterator[tuple[str, LazyTensor]]:
        """Yield the checkpoint's tensors, with the matrices of a layer's experts stacked."""
        experts: dict[str, dict[int, LazyTensor]] = {}
        for stored, tensor in self.checkpoint().items():
            name = used_name(self, stored)
            if name is None:
                continue
            if match := EXPERT.match(name):
                experts.setdefault(f"{match[1]}.{match[3]}", {})[int(match[2])] = tensor
            else:
                yield name, tensor
        for name, of_expert in experts.items():
            if sorted(of_expert) != list(range(len(of_expert))):
                raise ConvertError(f"{self.folder.path}: {name!r}: some of {max(of_expert) + 1} experts are missing")
            if len({tensor.shape for tensor in of_expert.values()}) > 1:
                raise ConvertError(f"{self.folder.path}: {name!r}: the experts have different shapes")
            yield name, stack([of_expert[i] for i in range(len(of_expert))])


def used_name(conversion: Conversion, name: str) -> str | None:
    """Return a tensor's normalized name, or None if it is not converted or ``unused``."""
    return None if any(part in name for part in conversion.unused) else conversion.rename(name)


def _split(joined: Mapping[str, Sequence[str]], name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
    """Yield a tensor, or its parts if it is one of those that are ``joined``."""
    part = next((part for part in joined if part in name), None)
    if part is None:
        yield name, tensor
        return
    parts = joined[part]
    for own, rows in zip(parts, tensor.split(*[tensor.shape[0] // len(parts)] * len(parts)), strict=True):
        yield name.replace(part, own), rows


def layer_of(name: str) -> int:
    """Return the layer of a checkpoint's tensor: the first number in its name, or -1 without one."""
    return next((int(part) for part in name.split(".") if part.isdecimal()), -1)


def _tuple(names: KeyNames) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names
