"""From a folder's tokenizer files to the metadata of a GGUF tokenizer."""

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
"""By kind, what makes keys ``tokenizer.*`` of a folder; None where it has no tokenizer of the kind."""


def vocabulary(folder: Folder, conversion: Conversion) -> dict[str, Any]:
    """The metadata of the first kind of tokenizer that the folder has. ConvertError if it has none of the family's."""
    for kind in conversion.vocabularies:
        found = KINDS[kind](folder, conversion)
        if found is not None:
            return found
    raise ConvertError(
        f"{folder.path}: has no tokenizer of {conversion.architecture}'s kinds ({', '.join(conversion.vocabularies)}): "
        f"tokenizer.json or tokenizer.model is missing, or of another kind"
    )
