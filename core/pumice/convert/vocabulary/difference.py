"""Compare the converted tokenizer with Hugging Face's library on difficult texts."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from pumice.convert.folder import Folder
from pumice.convert.vocabulary.bpe import FILE, load_fast
from pumice.convert.vocabulary.pre_tokenizer import HARD_TEXT

if TYPE_CHECKING:
    from pumice.tokenizers import Tokenizer

TEXTS = HARD_TEXT[:-1]  # without the last one, which has rare line separators


def first_difference(folder: Folder, tokenizer: Tokenizer) -> str | None:
    """Describe the first token of TEXTS that differs; None without a difference or ``tokenizer.json``."""
    theirs = load_fast(folder)
    if theirs is None:
        return None
    for text in TEXTS:
        expected = theirs.encode(text, add_special_tokens=False).ids
        for i, (own, its) in enumerate(zip_longest(tokenizer.tokenize(text, add_special=False), expected)):
            if own != its:
                ours = None if own is None else tokenizer.token_text(own)
                other = None if its is None else theirs.id_to_token(its)
                return f"token {i} of {text!r} is {other!r} in {FILE}, but {ours!r} in the converted file"
    return None
