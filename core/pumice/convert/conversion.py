"""`Conversion`: how a family's checkpoints become GGUF. A plugin brings it beside the family's architecture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from pumice.convert.folder import Folder
from pumice.convert.lazy import LazyTensor, stack
from pumice.convert.names import TensorNames
from pumice.convert.parameters import N_LAYER, parameters
from pumice.errors import ConvertError

# Of images and sound, which a language model does without.
OTHER_SENSES = re.compile(
    r"^(mlp|vit\.|vpm\.|siglip2\.|conformer\.|merger\.|resampler\.|sound_encoder\.|sound_projection\.|speech_embeddings\.)"
    r"|visual\.|vision[._]|audio[._]|talker\.|token2wav\.|code2wav\.|projector\.|pre_mm_projector_norm|image_newline"
    r"|view_seperator|patch_embed|patch_merger\.|patch_merge_mlp\.|model\.connector\."
)
COMPUTED = (".attention.masked_bias", ".attention.bias", ".rotary_emb.inv_freq")  # no weights, though stored
EXPERT = re.compile(r"^(.*\.experts)\.(\d+)\.(.+)$")


class Conversion:
    """One model class of Hugging Face's. Registered under its name, ``LlamaForCausalLM``.

    A subclass sets ``architecture``, and overrides what its family does otherwise. ``vocabularies``: kinds of
    tokenizers, tried in turn. ``pre_tokenizers``: names that go before others that cut text into the same words.
    """

    architecture: str
    vocabularies: tuple[str, ...] = ("bpe",)
    pre_tokenizers: tuple[str, ...] = ()

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.config = folder.config
        self.n_layer = self.config.need(*N_LAYER)

    def metadata(self) -> dict[str, Any]:
        """Hyperparameters by GGUF key, without the architecture's prefix. Integers become u32, numbers f32."""
        return parameters(self.config)

    def tokenizer(self) -> dict[str, Any]:
        """More of the tokenizer's metadata than its files say, by whole key."""
        return {}

    def tensors(self) -> Iterator[tuple[str, LazyTensor]]:
        """All tensors by their names in GGUF."""
        yield from self.more_tensors()
        for name, tensor in self._joined():
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
        if OTHER_SENSES.search(name) or name.endswith(COMPUTED):
            return None
        return name.replace("e_score_correction_bias", "e_score_correction.bias").replace("language_model.", "")

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        """What becomes of one tensor of the checkpoint: names in GGUF, and numbers."""
        yield self.names(name), tensor

    @cached_property
    def names(self) -> TensorNames:
        """From names of checkpoints to GGUF's."""
        return TensorNames(self.architecture, self.n_layer)

    def _joined(self) -> Iterator[tuple[str, LazyTensor]]:
        """The checkpoint's tensors, the matrices of a layer's experts as one."""
        experts: dict[str, dict[int, LazyTensor]] = {}
        for stored, tensor in self.folder.tensors.items():
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
