"""Convert WordPiece, BERT's tokenizer, from ``tokenizer.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pumice.convert.folder import Folder
from pumice.convert.vocabulary.bpe import FILE, load_fast, token_list
from pumice.convert.vocabulary.tokens import SPACE, TokenType
from pumice.convert.written import special_tokens

if TYPE_CHECKING:
    from pumice.convert.conversion import Conversion

CONTINUES = "##"  # prefix of tokens that continue a word
PRE_TOKENIZER = "jina-v2-en"  # the most common name of pre-tokenizers that split like BERT's


def wordpiece(folder: Folder, conversion: Conversion) -> dict[str, Any] | None:
    """Return the metadata of a WordPiece tokenizer, or None if the folder has none."""
    from tokenizers.models import WordPiece

    tokenizer = load_fast(folder)
    if tokenizer is None or not isinstance(tokenizer.model, WordPiece):
        return None
    tokens = token_list(folder, tokenizer, conversion.n_vocab)
    for id, (text, type) in enumerate(zip(tokens.tokens, tokens.types, strict=True)):
        if type is not TokenType.CONTROL:
            begins = not text.startswith(CONTINUES.encode())
            tokens.tokens[id] = SPACE.encode() + text if begins else text.removeprefix(CONTINUES.encode())
    normalizer = folder.json(FILE).get("normalizer") or {}
    normal = {
        f"tokenizer.ggml.normalizer.{name}": bool(normalizer[name])
        for name in ("lowercase", "strip_accents")
        if normalizer.get(name) is not None
    }
    special = special_tokens(folder.path, conversion.architecture, tokens.n, merges=False)
    return tokens.metadata("bert", PRE_TOKENIZER) | normal | special
