"""Whether a folder's text becomes the same tokens by Hugging Face's library and by the tokenizer of the file."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from pumice.convert.folder import Folder
from pumice.convert.vocabulary.bpe import FILE, load_fast
from pumice.convert.vocabulary.pre_tokenizer import HARD_TEXT

if TYPE_CHECKING:
    from pumice.tokenizers import Tokenizer

TEXTS = HARD_TEXT[:-1]  # the last one has separators of lines that hardly any text has


def first_difference(folder: Folder, tokenizer: Tokenizer) -> str | None:
    """The first token of TEXTS that differs, in words; None: none does, or there is no ``tokenizer.json``."""
    theirs = load_fast(folder)
    if theirs is None:
        return None
    theirs.no_truncation()
    theirs.no_padding()
    for text in TEXTS:
        expected = theirs.encode(text, add_special_tokens=False).ids
        for i, (own, its) in enumerate(zip_longest(tokenizer.tokenize(text, add_special=False), expected)):
            if own != its:
                ours = None if own is None else tokenizer.token_text(own)
                other = None if its is None else theirs.id_to_token(its)
                return f"token {i} of {text!r} is {other!r} by {FILE} and {ours!r} by the file that is made"
    return None
