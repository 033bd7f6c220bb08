"""`Conversion`: how a family's checkpoints become GGUF. A plugin brings it beside the family's architecture."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from pumice.convert.folder import Folder
from pumice.convert.lazy import LazyTensor, stack
from pumice.convert.names import TensorNames
from pumice.convert.parameters import N_LAYER, Names, number, parameters
from pumice.convert.quantized import dequantized
from pumice.convert.vocabulary.tokens import added_ids
from pumice.errors import ConvertError
from pumice.tokenizers import PRE_TOKENIZERS, PreTokenizer

logger = logging.getLogger("pumice")

# Of images and sound, which a language model does without.
OTHER_SENSES = re.compile(
    r"^(mlp|vit\.|vpm\.|siglip2\.|conformer\.|merger\.|resampler\.|sound_encoder\.|sound_projection\.|speech_embeddings\.)"
    r"|visual\.|vision[._]|audio[._]|talker\.|token2wav\.|code2wav\.|projector\.|pre_mm_projector_norm|image_newline"
    r"|view_seperator|patch_embed|patch_merger\.|patch_merge_mlp\.|model\.connector\."
)
COMPUTED = (".attention.masked_bias", ".attention.bias", ".rotary_emb.inv_freq")  # no weights, though stored
MOST_LAYERS = 1024  # the field's largest models have an eighth as many
MOST_HEAD_DIM = 1 << 16  # values; the field's largest heads have a hundredth as many
EXPERT = re.compile(r"^(.*experts)\.(\d+)\.(.+)$")

# Always in float32: what is small, or what products do not take in fewer bits.
FLOAT32 = frozenset({
    "ffn_gate_inp", "ffn_gate_inp_shexp", "position_embd", "token_types", "ssm_conv1d", "ssm_conv1d_q", "ssm_conv1d_k",
    "ssm_conv1d_v", "shortconv.conv", "time_mix_first", "time_mix_w1", "time_mix_w2", "time_mix_decay_w1",
    "time_mix_decay_w2", "time_mix_lerp_fused", "altup_correct_coef", "altup_predict_coef", "indexer.proj",
})  # fmt: skip


class Conversion:
    """One model class of Hugging Face's. Registered under its name, ``LlamaForCausalLM``.

    A subclass sets ``architecture`` and the tables in which its family differs, and overrides what no table can say.
    """

    architecture: str
    vocabularies: ClassVar[Sequence[str]] = ["bpe"]
    """Kinds of tokenizers, tried in turn."""
    pre_tokenizers: ClassVar[Sequence[str]] = []
    """Names of pre-tokenizers that go before others which cut text into the same words."""
    special_tokens: ClassVar[Mapping[str, str]] = {}
    """Of special tokens that the folder does not name: GGUF's name (``eot``) -> the token's text."""
    control_tokens: tuple[str, ...] = ()
    """Texts of tokens that steer, though the tokenizer does not say so."""
    n_vocab_multiple = 1
    """What the number of tokens is rounded up to."""

    integers: ClassVar[Mapping[str, Names]] = {}
    """Hyperparameters beyond those of most families: GGUF's key -> its names in ``config.json``."""
    numbers: ClassVar[Mapping[str, Names]] = {}
    flags: ClassVar[Mapping[str, Names]] = {}
    constants: ClassVar[Mapping[str, Any]] = {}
    """Hyperparameters that no configuration says."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Hyperparameters that ``config.json`` may leave out."""
    without: tuple[str, ...] = ()
    """Beginnings of keys that the family does not have, although its configuration has a value."""

    named_as = ""
    """The architecture whose tensors have the same names, where the package ``gguf`` does not know this one."""
    more_names: ClassVar[Mapping[str, str]] = {}
    """Names of tensors that the package does not know, without suffix; ``{}`` is the layer."""
    n_draft_name = ""
    """In ``config.json``, how many layers for drafting stand behind the others."""
    drops_tied_output = False
    """Whether an output that is tied to the embeddings is left out, though it is stored."""
    renames: ClassVar[Mapping[str, str]] = {}
    """What becomes of parts of tensors' names, regular expressions."""
    dropped: tuple[str, ...] = ()
    """Beginnings of names of tensors that are not converted."""
    float32: Collection[str] = FLOAT32
    """Tensors that stay in float32: names in GGUF without layer and suffix."""
    keeps_types = False
    """Whether matrices stay in the checkpoint's float32 and bfloat16, whatever type the file is of."""
    is_draft = False
    """Whether the model drafts for another one, whose tokenizer it has and whose folder must be given."""
    target: Conversion | None = None
    """Of a draft: the conversion of the model that it drafts for."""
    known_pre_tokenizers: Mapping[str, PreTokenizer] = PRE_TOKENIZERS
    """By name, one of which a tokenizer of byte-level BPE must have: those that come with Pumice, and plugins' ones."""
    n_rows = 0
    """Of the token embeddings; 0 before the tensors are converted, and without any."""

    @classmethod
    def recognises(cls, folder: Folder) -> bool:
        """Whether a folder without ``config.json`` is of this class."""
        return False

    @classmethod
    def made_for(cls, folder: Folder) -> Conversion:
        """The conversion of a folder; another class's where several go by one name."""
        return cls(folder)

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.config = folder.config
        self.n_layer = self.config.need(*N_LAYER, most=MOST_LAYERS)

    @property
    def target_conversion(self) -> Conversion:
        """``target``, which ConvertError asks for where it is not given."""
        if self.target is None:
            raise ConvertError(
                f"{self.folder.path}: drafts for another model: give that model's folder (pumice convert --target)"
            )
        return self.target

    @property
    def n_draft(self) -> int:
        """Layers for drafting, which the file has behind the others."""
        said = self.n_draft_name and self.config.first(self.n_draft_name) is not None
        return self.config.need(self.n_draft_name, least=0, most=MOST_LAYERS) if said else 0

    @property
    def head_dim(self) -> int:
        """Values of a head."""
        c = self.config
        n = c.need("head_dim") if c.first("head_dim") else c.need("hidden_size") // c.need("num_attention_heads")
        if n > MOST_HEAD_DIM:
            raise ConvertError(f"{c.path}: heads of {n} values are wider than those of any model")
        return n

    def n_rot(self, part: float = 1.0) -> int:
        """Values of a head that are turned; ``part`` of all, if the configuration does not say."""
        return int(self.head_dim * float(self.config.whole_rope.get("partial_rotary_factor", part)))

    def metadata(self) -> dict[str, Any]:
        """Hyperparameters by GGUF key, without the architecture's prefix. Integers become u32, numbers f32."""
        c = self.config
        found = {**self.defaults, **parameters(c), "block_count": self.n_layer + self.n_draft}
        found |= {key: c.counts(*_tuple(names)) for key, names in self._said(self.integers)}
        found |= {key: number(c, *_tuple(names)) for key, names in self._said(self.numbers)}
        found |= {key: bool(c.first(*_tuple(names))) for key, names in self._said(self.flags)}
        if self.n_draft_name and c.first(self.n_draft_name) is not None:
            found["nextn_predict_layers"] = self.n_draft
        return {key: value for key, value in found.items() if not key.startswith(self.without)} | dict(self.constants)

    def _said(self, table: Mapping[str, Names]) -> Iterator[tuple[str, Names]]:
        return ((key, names) for key, names in table.items() if self.config.first(*_tuple(names)) is not None)

    def other_metadata(self) -> dict[str, Any]:
        """Metadata by whole key: of the tokenizer, more than its files say, and the like."""
        return {}

    def steering_tokens(self) -> Mapping[int, str]:
        """Texts by id of tokens that steer and that the tokenizer's files do not have."""
        return {}

    @cached_property
    def added_ids(self) -> dict[str, int]:
        """Id by text of the tokens that were added to the vocabulary."""
        return added_ids(self.folder)

    def n_vocab(self, found: int) -> int:
        """Tokens in the file, one for each row of the embeddings.

        ``found``: those of the tokenizer, where the configuration does not say. Where it says less than there are
        rows, these count.
        """
        said = -(-self.config.n_vocab(found) // self.n_vocab_multiple) * self.n_vocab_multiple
        if said < self.n_rows:
            logger.warning("%s: %d tokens, and the embeddings have %d rows: the others are unused tokens",
                           self.config.path, said, self.n_rows)  # fmt: skip
        return max(said, self.n_rows)

    def tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        """All tensors by their names in GGUF."""
        yield from self.more_tensors()
        for name, tensor in self._joined():
            yield from self.converted(name, tensor)

    def converted(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        """As ``convert``. ConvertError for a tensor of another shape than the configuration has."""
        try:
            yield from self.convert(name, tensor)
        except (ValueError, IndexError) as error:  # of NumPy, about shapes
            raise ConvertError(
                f"{self.folder.path}: tensor {name!r} {list(tensor.shape)} does not fit the configuration: {error}"
            ) from None

    def more_tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        """Tensors that the checkpoint does not have, such as factors of rotary frequencies."""
        yield from ()

    def rename(self, name: str) -> str | None:
        """A tensor's name without what varies between checkpoints; None for one that is not converted."""
        if OTHER_SENSES.search(name) or name.endswith(COMPUTED) or name.startswith(self.dropped):
            return None
        if self.drops_tied_output and name.endswith("lm_head.weight") and self.config.get("tie_word_embeddings"):
            return None
        name = name.replace("e_score_correction_bias", "e_score_correction.bias").replace("language_model.", "")
        for part, new in self.renames.items():
            name = re.sub(part, new, name)
        return name

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        """What becomes of one tensor of the checkpoint: names in GGUF, and numbers."""
        yield self.names(name), tensor

    @cached_property
    def names(self) -> TensorNames:
        """From names of checkpoints to GGUF's."""
        n = self.n_layer + self.n_draft
        if n > MOST_LAYERS:
            raise ConvertError(f"{self.config.path}: {n} layers are more than any model has")
        return TensorNames(self.named_as or self.architecture, n, self.more_names)

    def checkpoint(self) -> dict[str, LazyTensor]:
        """The checkpoint's tensors by their names there, as numbers where they are quantized."""
        return dequantized(self.config, self.folder.tensors)

    def _joined(self) -> Iterator[tuple[str, LazyTensor]]:
        """The checkpoint's tensors, the matrices of a layer's experts as one."""
        experts: dict[str, dict[int, LazyTensor]] = {}
        for stored, tensor in self.checkpoint().items():
            name = self.rename(stored)
            if name is None:
                continue
            if match := EXPERT.match(name):
                experts.setdefault(f"{match[1]}.{match[3]}", {})[int(match[2])] = tensor
            else:
                yield name, tensor
        for name, of_expert in experts.items():
            if sorted(of_expert) != list(range(len(of_expert))):
                raise ConvertError(f"{self.folder.path}: {name!r}: of {max(of_expert) + 1} experts some are missing")
            if len({each.shape for each in of_expert.values()}) > 1:
                raise ConvertError(f"{self.folder.path}: {name!r}: the experts have different shapes")
            yield name, stack([of_expert[i] for i in range(len(of_expert))])


def layer_of(name: str) -> int:
    """The layer that a tensor of a checkpoint belongs to: the first number in its name; -1 if there is none."""
    return next((int(part) for part in name.split(".") if part.isdecimal()), -1)


def _tuple(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names
