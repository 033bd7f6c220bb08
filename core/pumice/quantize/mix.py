"""The rules by which a mix assigns types to tensors.

The rules are llama.cpp's (`llama-quant.cpp`): tensors with more sensitive values get more bits. Some rules count the
tensors of a kind, so tensors must be passed in the order of the file.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pumice.errors import QuantizeError
from pumice.gguf import GGMLType, block_size
from pumice.gguf.file_types import FileType

T = GGMLType

# Kinds of tensors by a part of their names; the first match counts.
_KINDS = {
    "attn_qkv.weight": "v",
    "attn_kv_b.weight": "v",
    "attn_v.weight": "v",
    "attn_k.weight": "k",
    "attn_q.weight": "q",
    "attn_output.weight": "attn_output",
    "ffn_up": "up",
    "ffn_gate": "gate",
    "ffn_down": "down",
}
_LOW_BITS = ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M")
_EMBEDDING = {
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS"), T.Q2_K),
    **dict.fromkeys(("IQ2_S", "IQ2_M", "IQ3_XXS"), T.IQ3_S),
    **dict.fromkeys(("TQ1_0", "TQ2_0", "Q2_0"), T.Q4_K),
}
_ATTENTION_OUTPUT = {"Q2_K": T.Q3_K, "IQ3_XXS": T.IQ3_S, "Q3_K_M": T.Q4_K, "Q3_K_L": T.Q5_K, "IQ3_M": T.Q4_K}
_ATTENTION_OUTPUT_OF_EIGHT = (
    "Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M", "IQ4_XS",
)  # fmt: skip

# Replacements of types whose blocks do not divide a row.
_FALLBACK = {
    **dict.fromkeys((T.IQ1_S, T.IQ1_M, T.IQ2_XXS, T.IQ2_XS, T.IQ2_S, T.IQ3_XXS, T.IQ3_S, T.IQ4_XS), T.IQ4_NL),
    **dict.fromkeys((T.Q2_0, T.Q2_K, T.Q3_K, T.TQ1_0, T.TQ2_0), T.Q4_0),
    T.Q4_K: T.Q5_0,
    T.Q5_K: T.Q5_1,
    T.Q6_K: T.Q8_0,
}


@dataclass(frozen=True)
class ModelFacts:
    """The facts about a model that the rules use.

    Attributes:
        n_layer: number of layers, including those that predict further tokens.
        gqa: query heads per key/value head in layer 0; 0 without attention.
        n_expert: number of experts; 0 for a dense model.
    """

    architecture: str
    n_layer: int
    gqa: int
    n_expert: int
    is_70b: bool


def kind_of(name: str) -> str:
    """Return the kind of a tensor: ``output``, ``embedding``, one of the kinds above, or ``other``."""
    if name == "output.weight":
        return "output"
    if name in ("token_embd.weight", "per_layer_token_embd.weight"):
        return "embedding"
    return next((kind for part, kind in _KINDS.items() if part in name), "other")


def fallback(type: GGMLType, columns: int) -> GGMLType:
    """Return the type, or a replacement whose blocks divide a row. Raises QuantizeError if there is none."""
    if columns % block_size(type) == 0:
        return type
    if type not in _FALLBACK and block_size(type) > 32:
        raise QuantizeError(f"a row of {columns} is not divisible into {type.name} blocks of {block_size(type)}")
    smaller = _FALLBACK.get(type, type)
    return smaller if columns % block_size(smaller) == 0 else T.F16


class Mix:
    """The rules of one mix for one model; call ``choose`` once for each tensor, in order."""

    def __init__(self, file_type: FileType, model: ModelFacts, names: Iterable[str], has_imatrix: bool) -> None:
        self.name = file_type.name
        self.default = file_type.default
        self.model = model
        self.has_imatrix = has_imatrix
        kinds = [kind_of(name) for name in names]
        self.is_tied = "output" not in kinds
        self.n_v = kinds.count("v")
        self._seen = dict.fromkeys(("v", "down", "gate", "up"), 0)

    def choose(self, name: str, columns: int, n_matrices: int) -> GGMLType:
        """Return the type of a tensor with ``columns`` columns, whose blocks may not divide a row (`fallback`)."""
        kind = kind_of(name)
        if self.model.architecture == "glm5-next" and any(
            part in name for part in ("attn_q_a", "attn_q_b", "nextn.eh_proj")
        ):
            return T.Q8_0
        if kind == "output" or (self.is_tied and kind == "embedding"):
            return self._output(columns)
        if self.name == "MXFP4_MOE":
            is_expert = self.model.architecture != "bailingmoe3" or kind in ("up", "gate", "down")
            return T.MXFP4 if n_matrices > 1 and is_expert else T.Q8_0
        if kind == "embedding":
            return _EMBEDDING.get(self.name, self.default)
        if self.name in _LOW_BITS:
            return self._low_bits(kind) or self.default
        rules = {
            "v": self._attention_v,
            "k": self._attention_k,
            "q": self._attention_q,
            "attn_output": self._attention_output,
            "down": self._ffn_down,
            "gate": self._ffn_gate_or_up,
            "up": self._ffn_gate_or_up,
        }
        chosen = rules[kind](name) if kind in rules else None
        return self.default if chosen is None else chosen

    def _output(self, columns: int) -> GGMLType:
        if self.name == "MXFP4_MOE" or self.model.architecture == "falcon" or columns % block_size(self.default):
            return T.Q8_0
        if self.name in _LOW_BITS or self.name == "IQ3_XXS":
            return T.Q5_K
        return T.Q8_0 if self.default is T.Q8_0 else T.Q6_K

    def _low_bits(self, kind: str) -> GGMLType | None:
        better = T.IQ3_S if self.name in ("IQ2_S", "IQ2_M") else T.Q2_K
        if kind == "v":
            self._count("v")
            return T.Q4_K if self.model.gqa >= 4 or self.model.n_expert >= 4 else better
        if kind == "k" and self.model.n_expert == 8:
            return T.Q4_K
        if kind == "down":
            return better if self._count("down") < self.model.n_layer // 8 else None
        if kind == "attn_output":
            if self.model.n_expert == 8:
                return T.Q5_K
            return {"IQ1_S": T.IQ2_XXS, "IQ1_M": T.IQ2_XXS, "IQ2_S": T.IQ3_S, "IQ2_M": T.IQ3_S}.get(self.name)
        return None

    def _attention_v(self, name: str) -> GGMLType | None:
        i = self._count("v")
        if self.model.n_expert == 8:
            return T.Q8_0
        chosen = self._attention_v_of(i)
        if self.model.is_70b and (chosen or self.default) in (T.Q3_K, T.Q4_K):
            return T.Q5_K
        return chosen

    def _attention_v_of(self, i: int) -> GGMLType | None:
        shared = self.model.gqa >= 4
        match self.name:
            case "Q2_K":
                return T.Q4_K if shared else T.Q3_K
            case "IQ3_XXS" if not shared:
                return T.IQ3_XXS if self.has_imatrix else T.IQ3_S
            case "Q2_K_S" | "IQ3_XXS" | "IQ3_XS" | "IQ3_S":
                return T.Q4_K if shared else None
            case "IQ3_M":
                return T.Q4_K
            case "Q3_K_M":
                return T.Q5_K if i < 2 else T.Q4_K
            case "Q3_K_L":
                return T.Q5_K
            case "IQ4_NL" | "IQ4_XS":
                return T.Q5_K if shared else None
            case "Q4_K_M" | "Q5_K_M":
                return T.Q6_K if more_bits(i, self.n_v) else None
            case "Q4_K_S":
                return T.Q5_K if i < 4 else None
        return None

    def _attention_k(self, name: str) -> GGMLType | None:
        return T.Q8_0 if self.model.n_expert == 8 else self._attention_q(name)

    def _attention_q(self, name: str) -> GGMLType | None:
        return {"IQ3_XS": T.IQ3_XXS, "IQ3_XXS": T.IQ2_S}.get(self.name)

    def _attention_output(self, name: str) -> GGMLType | None:
        if self.model.architecture == "falcon":
            return T.Q4_K if self.name == "Q3_K_L" else None
        if self.model.n_expert == 8:
            return T.Q5_K if self.name in _ATTENTION_OUTPUT_OF_EIGHT else None
        return _ATTENTION_OUTPUT.get(self.name)

    def _ffn_down(self, name: str) -> GGMLType | None:
        i, n = self._layer("down", name), self.model.n_layer
        is_falcon, first = self.model.architecture == "falcon", i < n // 8
        match self.name:
            case "Q2_K":
                return T.Q3_K
            case "Q2_K_S":
                return T.Q4_K if first else None
            case "IQ3_XXS" if not self.has_imatrix:
                return T.Q4_K if first else T.Q3_K
            case "Q3_K_M" if i < n // 16:
                return T.Q5_K
            case "Q3_K_M":
                return T.Q4_K if not is_falcon or more_bits(i, n) else T.Q3_K
            case "IQ3_M":
                return T.Q4_K if first or (self.model.n_expert == 8 and more_bits(i, n)) else None
            case "Q3_K_L":
                return T.Q4_K if is_falcon else T.Q5_K
            case "Q4_K_M" if is_falcon and i >= n // 16:
                return T.Q5_K if more_bits(i, n) else T.Q4_K
            case "Q4_K_M" if is_falcon:
                return T.Q6_K
            case "Q4_K_M" | "Q5_K_M":
                return T.Q6_K if more_bits(i, n) else None
            case "IQ4_NL" | "IQ4_XS":
                return T.Q5_K if first and not self.has_imatrix else None
            case "Q4_K_S":
                return T.Q5_K if first and not is_falcon else None
            case "Q4_0" if self.has_imatrix and first:
                return T.Q4_1
            case "Q5_0" if self.has_imatrix and first:
                return T.Q5_1
        return None

    def _ffn_gate_or_up(self, name: str) -> GGMLType | None:
        i, n = self._layer(kind_of(name), name), self.model.n_layer
        return T.IQ3_XXS if self.name == "IQ3_XS" and n // 8 <= i < 7 * n // 8 else None

    def _count(self, kind: str) -> int:
        """Return the number of previous tensors of a kind, and count this one."""
        self._seen[kind] += 1
        return self._seen[kind] - 1

    def _layer(self, kind: str, name: str) -> int:
        """Return the layer of a tensor: from its name if the model has experts, else by counting its kind."""
        i = self._count(kind)
        if self.model.n_expert <= 1:
            return i
        number = re.match(r"blk\.(\d+)\.", name)
        if number is None or int(number[1]) >= self.model.n_layer:
            raise QuantizeError(f"tensor {name!r}: its name has no layer from 0 to {self.model.n_layer - 1}")
        return int(number[1])


def more_bits(i: int, n: int) -> bool:
    """Return True if layer i of n gets more bits: in the first and last eighths, and every third layer between."""
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2
