"""Types of the fields of request bodies, each with its bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from pumice_server import limits

MAX_INT = 2**31 - 1
MAX_REAL = 1e6
REASON = "x-refused"
"""The key of a field's schema that says why the field is not supported."""


def refused(reason: str) -> Meta:
    """Mark a field that would change the answer and is not supported: any value but an empty one is an error."""
    return Meta(extra_json_schema={REASON: reason})


def bounded(kind: Any, limits_of_kind: Mapping[str, float]) -> Any:
    """Return a type of options with its limits, and with finite ones where it has none."""
    if kind is float:
        return Annotated[float, Meta(ge=limits_of_kind.get("ge", -MAX_REAL), le=limits_of_kind.get("le", MAX_REAL))]
    if kind is int:
        return Annotated[int, Meta(ge=limits_of_kind.get("ge", -MAX_INT), le=limits_of_kind.get("le", MAX_INT))]
    return kind


# --- numbers

Count = Annotated[int, Meta(ge=-1, le=MAX_INT)]
Natural = Annotated[int, Meta(ge=0, le=MAX_INT)]
Position = Annotated[int, Meta(ge=0, le=limits.MAX_IDS)]
NChoices = Annotated[int, Meta(ge=1, le=limits.MAX_N)]
NLogprobs = Annotated[int, Meta(ge=0, le=limits.MAX_LOGPROBS)]
NProbs = Annotated[int, Meta(ge=0, le=limits.MAX_PROBS)]
EUCLIDEAN = 2
Norm = Annotated[int, Meta(ge=-1, le=1000)]
Dimensions = Annotated[int, Meta(ge=1, le=limits.MAX_IDS)]
Milliseconds = Annotated[int, Meta(ge=-1, le=24 * 3600 * 1000)]
Priority = Annotated[int, Meta(ge=-(2**31), le=2**31)]
Seed = Annotated[int, Meta(ge=-1, extra_json_schema={"maximum": 2**64 - 1})]  # msgspec bounds by int64 alone
Real = Annotated[float, Meta(ge=-MAX_REAL, le=MAX_REAL)]
Penalty = Annotated[float, Meta(ge=1e-6, le=1e6)]
Bias = bool | Annotated[float, Meta(ge=-limits.MAX_BIAS, le=limits.MAX_BIAS)]

# --- texts

Word = Annotated[str, Meta(max_length=64)]
Name = Annotated[str, Meta(max_length=limits.MAX_NAME)]
Short = Annotated[str, Meta(max_length=512)]
Grammar = Annotated[str, Meta(max_length=1 << 20)]
Pattern = Annotated[str, Meta(max_length=1 << 16)]
BiasKey = Annotated[str, Meta(max_length=limits.MAX_BIAS_LENGTH)]
Stop = Annotated[str, Meta(max_length=256)]

# --- lists and objects

Object = Annotated[dict[str, Any], Meta(max_length=1024)]
SmallObject = Annotated[dict[str, Any], Meta(max_length=64)]
JSONSchema = bool | Annotated[dict[str, Any], Meta(max_length=1 << 16)] | Grammar
Stops = Annotated[list[Stop], Meta(max_length=16)]
Choices = Annotated[list[Pattern], Meta(max_length=1024)]
TokenIds = Annotated[list[Natural], Meta(max_length=1024)]
SamplerNames = Annotated[str, Meta(max_length=32)] | Annotated[list[Word], Meta(max_length=32)]
SequenceBreakers = Annotated[list[Annotated[str, Meta(max_length=40)]], Meta(min_length=1, max_length=64)]
LogitBias = (
    Annotated[dict[BiasKey, Bias], Meta(max_length=1024)]
    | Annotated[list[tuple[int | BiasKey, Bias]], Meta(max_length=1024)]
)
Tools = Annotated[list[Object], Meta(max_length=limits.MAX_TOOLS)]
Texts = Annotated[list[str], Meta(max_length=limits.MAX_TEXTS)]
TextsAndIds = Annotated[list[int | str], Meta(max_length=limits.MAX_IDS)]
Prompt = str | Annotated[list[int | str | TextsAndIds | dict[str, Any]], Meta(max_length=limits.MAX_IDS)] | Object
"""A text, token ids, both mixed, an object with ``prompt_string``, or a list of these."""
EmbeddingInput = (
    str
    | Annotated[
        list[str | int | TextsAndIds | Object],
        Meta(max_length=limits.MAX_IDS),
    ]
    | Object
)
"""A text, token ids, an object with ``content`` or ``prompt_string``, or a list of these."""

Blocks = Annotated[list[dict[str, Any]], Meta(max_length=limits.MAX_MESSAGES)]
Messages = Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=limits.MAX_MESSAGES)]
"""Messages or items. The chat template and the protocols check them, with errors that say more."""
