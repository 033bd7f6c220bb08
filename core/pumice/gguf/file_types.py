"""Quantization targets: types, and mixes of types, with llama.cpp's names and numbers (`general.file_type`)."""

from dataclasses import dataclass

from pumice.errors import QuantizeError
from pumice.gguf import GGMLType
from pumice.wording import unknown_name


@dataclass(frozen=True)
class FileType:
    """A type or a mix of types, as `pumice quantize` takes it.

    Attributes:
        name: llama.cpp's name.
        number: value of `general.file_type`.
        default: type of the tensors without a rule in the mix.
    """

    name: str
    number: int
    default: GGMLType


def _named(number: int, name: str, default: str = "") -> FileType:
    return FileType(name, number, GGMLType[default or name])


_ALL = (
    _named(0, "F32"),
    _named(1, "F16"),
    _named(32, "BF16"),
    _named(7, "Q8_0"),
    _named(18, "Q6_K"),
    _named(9, "Q5_1"),
    _named(8, "Q5_0"),
    _named(17, "Q5_K_M", "Q5_K"),
    _named(16, "Q5_K_S", "Q5_K"),
    _named(3, "Q4_1"),
    _named(2, "Q4_0"),
    _named(15, "Q4_K_M", "Q4_K"),
    _named(14, "Q4_K_S", "Q4_K"),
    _named(25, "IQ4_NL"),
    _named(30, "IQ4_XS"),
    _named(38, "MXFP4_MOE", "MXFP4"),
    _named(13, "Q3_K_L", "Q3_K"),
    _named(12, "Q3_K_M", "Q3_K"),
    _named(11, "Q3_K_S", "Q3_K"),
    _named(27, "IQ3_M", "IQ3_S"),
    _named(26, "IQ3_S"),
    _named(22, "IQ3_XS", "IQ3_S"),
    _named(23, "IQ3_XXS"),
    _named(10, "Q2_K"),
    _named(21, "Q2_K_S", "Q2_K"),
    _named(29, "IQ2_M", "IQ2_S"),
    _named(28, "IQ2_S", "IQ2_XS"),
    _named(20, "IQ2_XS"),
    _named(19, "IQ2_XXS"),
    _named(41, "Q2_0"),
    _named(37, "TQ2_0"),
    _named(36, "TQ1_0"),
    _named(31, "IQ1_M"),
    _named(24, "IQ1_S"),
    _named(40, "Q1_0"),
)

FILE_TYPES = {file_type.name: file_type for file_type in _ALL}
ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}
COPY = "COPY"  # keeps the type of every tensor
GUESSED = 1024  # added to the number if it is inferred from the tensors


def file_type(name: str) -> FileType:
    """Return the type or mix of a name in any case, or of its number.

    Raises:
        QuantizeError: unknown name.
    """
    key = ALIASES.get(name.upper(), name.upper())
    for candidate in _ALL:
        if key in (candidate.name, str(candidate.number)):
            return candidate
    raise QuantizeError(unknown_name("type", name, [*FILE_TYPES, COPY]))


def tensor_type(name: str) -> GGMLType:
    """Return the tensor type of a name in any case.

    Raises:
        QuantizeError: not a type that tensors can be quantized to.
    """
    types = {target.default.name: target.default for target in _ALL}
    if name.upper() not in types:
        raise QuantizeError(unknown_name("tensor type", name, list(types)))
    return types[name.upper()]
