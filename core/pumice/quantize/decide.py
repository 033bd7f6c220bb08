"""What each tensor becomes: the rules of a mix, the user's wishes, and the weights that a type needs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.errors import QuantizeError
from pumice.gguf import Encoded, GGMLType, GGUFFile, ModelTensor, TensorInfo, block_size
from pumice.gguf.tensors import without_ones
from pumice.quantize.file_types import FileType
from pumice.quantize.imatrix import ImportanceMatrix
from pumice.quantize.mix import Mix, ModelFacts, fallback, kind_of
from pumice.quantize.protected import is_protected

FLOATS = (GGMLType.F32, GGMLType.F16, GGMLType.BF16)
CANNOT_WITHOUT_WEIGHTS = (GGMLType.IQ1_S, GGMLType.IQ2_XXS, GGMLType.IQ2_XS)
NEED_WEIGHTS = (*CANNOT_WITHOUT_WEIGHTS, GGMLType.IQ1_M, GGMLType.IQ2_S, GGMLType.IQ3_XXS)  # to be worth anything


@dataclass(frozen=True)
class Options:
    """How a model is quantized.

    pure: the mix's default type for every tensor that is not protected. leave_output: ``output.weight`` keeps its type.
    output_type, embedding_type: of ``output.weight`` and of ``token_embd.weight``.
    tensor_types: (pattern, type); the first whose regular expression is found in a tensor's name decides.
    prune_layers: numbers of layers to leave out. overrides: metadata that is set.
    """

    pure: bool = False
    leave_output: bool = False
    output_type: GGMLType | None = None
    embedding_type: GGMLType | None = None
    tensor_types: Sequence[tuple[str, GGMLType]] = ()
    allow_requantize: bool = False
    keep_split: bool = False
    prune_layers: Sequence[int] = ()
    overrides: Mapping[str, Encoded] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """One tensor: where it comes from, and what is written of it.

    weights: [matrices, columns] of an importance matrix; None: there are none, or it is copied.
    wanted: the type that was chosen, where its blocks do not divide the rows.
    """

    source: ModelTensor
    info: TensorInfo
    weights: NDArray[np.float32] | None = None
    wanted: GGMLType | None = None
    needs_weights: bool = False

    @property
    def is_copy(self) -> bool:
        return self.info.type is self.source.type


class Chooser:
    """Decides on one tensor after another, in the file's order."""

    def __init__(
        self,
        file: GGUFFile,
        values: Mapping[str, Any],
        to: FileType | None,
        imatrix: ImportanceMatrix | None,
        options: Options,
        names: Sequence[str],
    ) -> None:
        self.file, self.to, self.imatrix, self.options = file, to, imatrix, options
        self.architecture = file.architecture
        self.mix = None if to is None else Mix(to, model_facts(file, values), names, imatrix is not None)
        self.patterns = [(_compiled(pattern), type) for pattern, type in options.tensor_types]
        self.fitting: set[int] = set()

    def decide(self, source: ModelTensor, name: str) -> Decision:
        shape = without_ones(source.shape)
        wanted = self._type(source.type, name, shape)
        columns = shape[-1]
        type = wanted if wanted in FLOATS or wanted is source.type else self._fitting_type(wanted, name, columns)
        info = TensorInfo(name, type, shape)
        if type is source.type:
            return Decision(source, info)
        self._check_source(source)
        needs = self._needs_weights(name, type)
        weights = None if type in FLOATS else self._weights(source.name, shape, needs)
        return Decision(source, info, weights, wanted if wanted is not type else None, needs)

    def check_patterns(self) -> None:
        """QuantizeError for a pattern that no tensor fits: it is most likely misspelt; and where none counts."""
        if self.patterns and self.to is not None and self.to.default in FLOATS:
            raise QuantizeError(f"{self.to.name} is one type for all tensors: patterns for single ones do not count")
        for i, (pattern, _) in enumerate(self.patterns):
            if i not in self.fitting:
                raise QuantizeError(f"no tensor that may be quantized fits the pattern {pattern.pattern!r}")

    def _type(self, old: GGMLType, name: str, shape: tuple[int, ...]) -> GGMLType:
        if self.mix is None or is_protected(self.architecture, name, shape):
            return old
        if self.options.leave_output and name == "output.weight":
            return old
        kind, pattern = kind_of(name), self._pattern(name)
        by_pattern = name == "per_layer_token_embd.weight" and pattern is not None
        if self.options.embedding_type is not None and kind == "embedding" and not by_pattern:
            return self.options.embedding_type
        if self.options.output_type is not None and kind == "output":
            return self.options.output_type
        if self.mix.default in FLOATS:
            return self.mix.default
        if pattern is not None:
            return pattern
        if self.options.pure:
            return self.mix.default
        if self.options.output_type is not None and kind == "embedding" and self.mix.is_tied:
            return self.options.output_type
        return self.mix.choose(name, shape[-1], shape[-3] if len(shape) > 2 else 1)

    def _pattern(self, name: str) -> GGMLType | None:
        found = [(i, type) for i, (pattern, type) in enumerate(self.patterns) if pattern.search(name)]
        self.fitting.update(i for i, _ in found)
        return found[0][1] if found else None

    def _fitting_type(self, wanted: GGMLType, name: str, columns: int) -> GGMLType:
        try:
            return fallback(wanted, columns)
        except QuantizeError as error:
            raise QuantizeError(f"{self.file.path}: tensor {name!r}: {error}") from None

    def _check_source(self, source: ModelTensor) -> None:
        if len(without_ones(source.shape)) > 3:
            raise QuantizeError(
                f"{self.file.path}: tensor {source.name!r} has four dimensions, which none can quantize"
            )
        if block_size(source.type) > 1 and not self.options.allow_requantize:
            raise QuantizeError(
                f"{self.file.path}: tensor {source.name!r} is {source.type.name} already: quantize from F32, F16 or "
                "BF16, or give --allow-requantize"
            )

    def _needs_weights(self, name: str, type: GGMLType) -> bool:
        if kind_of(name) in ("embedding", "output"):
            return type in CANNOT_WITHOUT_WEIGHTS
        q2_k_s = self.to is not None and self.to.name == "Q2_K_S" and type is GGMLType.Q2_K
        return type in NEED_WEIGHTS or q2_k_s

    def _weights(self, name: str, shape: tuple[int, ...], needed: bool) -> NDArray[np.float32] | None:
        """Of the tensor that ``name`` is in the source: [matrices, columns]."""
        if self.imatrix is None:
            return None
        values = self.imatrix.weights.get(name)
        n_matrices, columns = shape[-3] if len(shape) > 2 else 1, shape[-1]
        if values is None:
            if needed:
                raise QuantizeError(
                    f"{self.imatrix.path}: has no weights for tensor {name!r}, whose new type needs them: measure on "
                    "more text, or choose another type for it with --tensor-type"
                )
            return None
        if values.size == n_matrices * columns:
            return values.reshape(n_matrices, columns)
        if kind_of(name) == "embedding":
            return None
        raise QuantizeError(
            f"{self.imatrix.path}: has {values.size} weights for tensor {name!r}, which has {n_matrices} x {columns} "
            "columns; is it of another model?"
        )


def missing_weights(decisions: Sequence[Decision]) -> list[Decision]:
    """The tensors whose new type needs weights that there are not."""
    return [decision for decision in decisions if decision.needs_weights and decision.weights is None]


def model_facts(file: GGUFFile, values: Mapping[str, Any]) -> ModelFacts:
    """What the rules of mixes ask, from a file's metadata as they are overridden."""
    architecture = file.architecture

    def number(key: str, default: int = 0) -> int:
        """Of the first layer, where each has its own."""
        value = values.get(f"{architecture}.{key}", default)
        if isinstance(value, np.ndarray):
            value = value[0] if value.size else default
        return int(value)

    n_layer = number("block_count")
    n_head = number("attention.head_count")
    n_head_kv = number("attention.head_count_kv", n_head)
    has_80 = n_layer == 80 and (architecture != "llama" or n_head != n_head_kv)
    is_70b = (architecture in ("llama", "deci", "olmo", "qwen2") and has_80) or (architecture, n_layer) == ("jais2", 68)
    gqa = n_head // n_head_kv if n_head_kv else 0
    return ModelFacts(architecture, n_layer, gqa, number("expert_count"), is_70b)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise QuantizeError(f"{pattern!r} is not a regular expression: {error}") from None
