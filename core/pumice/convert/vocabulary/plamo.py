"""Convert PLaMo's vocabulary: lines of JSON lists with token, score and type."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pumice.convert.folder import Folder
from pumice.convert.vocabulary.tokens import TokenList, TokenType
from pumice.convert.written import special_tokens
from pumice.errors import ConvertError

if TYPE_CHECKING:
    from pumice.convert.conversion import Conversion

FILE = "tokenizer.jsonl"
END_OF_TURN = 4  # the token <|plamo:op|>
NAMES = {"bos": "bos", "eos": "eos", "pad": "padding", "sep": "seperator", "unk": "unknown"}


def plamo(folder: Folder, conversion: Conversion) -> dict[str, Any] | None:
    """Return the metadata of PLaMo's tokenizer, or None if the folder has none."""
    if not folder.has(FILE):
        return None
    try:
        # Bytes, since str.splitlines would also split at separators inside of tokens.
        lines = (folder.path / FILE).read_bytes().splitlines()
        rows = [(str(text), float(score), str(kind)) for text, score, kind, *_ in map(json.loads, filter(None, lines))]
    except (ValueError, TypeError) as error:
        raise ConvertError(f"{folder.path / FILE}: not a list of tokens: {error}") from None
    tokens = TokenList(conversion.n_vocab(len(rows)), scored=True)
    for id, (text, score, kind) in enumerate(rows):
        steers = text.startswith("<|plamo:") and text.endswith("|>")
        named_types = {"UNKNOWN": TokenType.UNKNOWN, "CONTROL": TokenType.CONTROL, "BYTE": TokenType.BYTE}
        tokens.set(id, text, named_types.get(kind, TokenType.CONTROL if steers else TokenType.NORMAL), score)
    for id in range(len(rows), tokens.n):
        tokens.set(id, f"[PAD{id - len(rows) + 1}]", TokenType.UNUSED)
    ids = {text: id for id, (text, _, _) in enumerate(rows)}
    config = folder.optional_json("tokenizer_config.json")
    named = {gguf: config.get(f"{name}_token") for name, gguf in NAMES.items()}
    special = {f"tokenizer.ggml.{name}_token_id": ids[text] for name, text in named.items() if text in ids}
    tokens_and_template = special_tokens(folder.path, conversion.architecture, tokens.n, merges=False, types=())
    template = {key: value for key, value in tokens_and_template.items() if key.startswith("tokenizer.chat_template")}
    more = {"tokenizer.ggml.eot_token_id": END_OF_TURN, "tokenizer.ggml.add_space_prefix": False}
    return tokens.metadata("plamo2", "default") | special | more | template
