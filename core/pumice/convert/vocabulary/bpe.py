"""Convert byte-level BPE from ``tokenizer.json``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pumice.convert.folder import Folder
from pumice.convert.vocabulary.pre_tokenizer import nearest, recognise
from pumice.convert.vocabulary.tokens import TokenList, TokenType
from pumice.convert.written import special_tokens
from pumice.errors import ConvertError
from pumice.wording import documentation_page

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from pumice.convert.conversion import Conversion

FILE = "tokenizer.json"


def load_fast(folder: Folder) -> Tokenizer | None:
    """Return the tokenizer, read by Hugging Face's library, or None without a file.

    It encodes a text as a whole and always in the same way: without the file's truncation, padding and dropout, which
    are settings of batches and of training. Raises ConvertError.
    """
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

    if not folder.has(FILE):
        return None
    try:
        tokenizer = Tokenizer.from_file(str(folder.path / FILE))
    except Exception as error:  # the library raises nothing narrower
        raise ConvertError(f"{folder.path / FILE}: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if isinstance(tokenizer.model, BPE):
        tokenizer.model.dropout = None
    return tokenizer


def bpe(folder: Folder, conversion: Conversion) -> dict[str, Any] | None:
    """Return the metadata of a byte-level BPE tokenizer, or None if the folder has none."""
    from tokenizers.models import BPE

    tokenizer = load_fast(folder)
    if tokenizer is None or not isinstance(tokenizer.model, BPE) or tokenizer.model.byte_fallback:
        return None
    tokens = token_list(folder, tokenizer, conversion.n_vocab)
    for text in conversion.control_tokens:
        if (id := tokenizer.token_to_id(text)) is not None:
            tokens.types[id] = TokenType.CONTROL
    tokens.add_control(conversion.steering_tokens())
    references = conversion.known_pre_tokenizers
    pre = recognise(tokenizer, conversion.pre_tokenizers, references)
    if pre is None:
        raise ConvertError(
            f"{folder.path / FILE}: unknown pre-tokenizer ({nearest(tokenizer, references)}); "
            f"a plugin can add it: see {documentation_page('plugins.md')}"
        )
    special = special_tokens(folder.path, conversion.architecture, tokens.n, merges=True)
    return tokens.metadata("gpt2", pre) | special


def token_list(folder: Folder, tokenizer: Tokenizer, size: Callable[[int], int]) -> TokenList:
    """Return the tokens of a vocabulary, including added ones. ``size`` returns the model's number of tokens."""
    ids = tokenizer.get_vocab(with_added_tokens=True)
    n_vocab = size(len(ids))
    highest = max(ids.values(), default=0)
    if highest >= n_vocab:
        raise ConvertError(f"{folder.path / FILE}: token id {highest} exceeds the model's {n_vocab} tokens")
    tokens = TokenList(n_vocab)
    added = tokenizer.get_added_tokens_decoder()
    for text, id in ids.items():
        if id not in added:
            tokens.set(id, text, TokenType.NORMAL)
    for id, token in added.items():
        text = (
            token.content
            if token.normalized
            else tokenizer.decode(
                tokenizer.encode(token.content, add_special_tokens=False).ids, skip_special_tokens=False
            )
        )
        tokens.add(id, text, token.special)
    return tokens
