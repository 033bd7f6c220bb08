"""What a model can be quantized to: a type, or a mix of types under one name.

Names and numbers (`general.file_type`) are llama.cpp's.
"""

from dataclasses import dataclass

from pumice.errors import QuantizeError
from pumice.gguf import GGMLType
from pumice.suggest import unknown_name


@dataclass(frozen=True)
class FileType:
    """A name that `pumice quantize` takes.

    default: the type of the tensors that no rule of the mix names.
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
COPY = "COPY"  # every tensor as it is
GUESSED = 1024  # added to the number where a file does not say its own


def file_type(name: str) -> FileType:
    """The type or mix of a name in any case, or of its number. QuantizeError for an unknown one."""
    wanted = ALIASES.get(name.upper(), name.upper())
    for each in _ALL:
        if wanted in (each.name, str(each.number)):
            return each
    raise QuantizeError(unknown_name("type", name, [*FILE_TYPES, COPY]))


def tensor_type(name: str) -> GGMLType:
    """The type of a name in any case, one of those that mixes are made of. QuantizeError for an unknown one."""
    known = {each.default.name: each.default for each in _ALL}
    if name.upper() not in known:
        raise QuantizeError(unknown_name("tensor type", name, list(known)))
    return known[name.upper()]
