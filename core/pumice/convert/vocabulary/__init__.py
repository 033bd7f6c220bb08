"""Convert a folder's tokenizer files to the metadata of a GGUF tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pumice.convert.folder import Folder
from pumice.convert.vocabulary.bpe import bpe
from pumice.convert.vocabulary.plamo import plamo
from pumice.convert.vocabulary.ranks import tekken, tiktoken
from pumice.convert.vocabulary.rwkv import rwkv
from pumice.convert.vocabulary.sentencepiece import fast_sentencepiece, gemma4, sentencepiece
from pumice.convert.vocabulary.unigram import unigram
from pumice.convert.vocabulary.wordpiece import wordpiece
from pumice.errors import ConvertError

if TYPE_CHECKING:
    from pumice.convert.conversion import Conversion

KINDS: dict[str, Callable[[Folder, Conversion], dict[str, Any] | None]] = {
    "bpe": bpe,
    "fast_sentencepiece": fast_sentencepiece,
    "gemma4": gemma4,
    "none": lambda folder, conversion: {"tokenizer.ggml.model": "none"},
    "plamo": plamo,
    "rwkv": rwkv,
    "sentencepiece": sentencepiece,
    "tekken": tekken,
    "tiktoken": tiktoken,
    "unigram": unigram,
    "wordpiece": wordpiece,
}
"""Converters by kind. They return the keys ``tokenizer.*``, or None if the folder has no tokenizer of the kind."""


def vocabulary(folder: Folder, conversion: Conversion) -> dict[str, Any]:
    """Return the metadata of the first of the family's kinds that the folder has. Raises ConvertError without one."""
    for kind in conversion.vocabularies:
        metadata = KINDS[kind](folder, conversion)
        if metadata is not None:
            return metadata
    raise ConvertError(
        f"{folder.path}: no tokenizer of a kind that {conversion.architecture} uses "
        f"({', '.join(conversion.vocabularies)}): tokenizer.json or tokenizer.model is missing, or of another kind"
    )
