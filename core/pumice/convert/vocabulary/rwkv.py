"""Convert RWKV's vocabulary: a text file with id, token and length per line."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from pumice.convert.folder import Folder
from pumice.convert.vocabulary.tokens import TokenList, TokenType
from pumice.convert.written import special_tokens
from pumice.errors import ConvertError
from pumice.gguf import encode

if TYPE_CHECKING:
    from pumice.convert.conversion import Conversion

FILE = "rwkv_vocab_v20230424.txt"
N_VOCAB = 65536
END_OF_TEXT, END_OF_TURN = 0, 261  # an empty line ends a turn


def rwkv(folder: Folder, conversion: Conversion) -> dict[str, Any] | None:
    """Return the metadata of RWKV's tokenizer, or None if the folder has none."""
    if not folder.has(FILE):
        return None
    tokens = TokenList(conversion.n_vocab(N_VOCAB))
    tokens.set(END_OF_TEXT, "<s>", TokenType.CONTROL)
    for number, line in enumerate((folder.path / FILE).read_text("utf-8-sig").splitlines(), 1):
        tokens.set(number, _escaped(folder, number, line), TokenType.NORMAL)
    special = special_tokens(folder.path, conversion.architecture, tokens.n, merges=False)
    keys = tokens.metadata("rwkv", "")
    del keys["tokenizer.ggml.pre"]
    return (
        keys
        | {"tokenizer.chat_template": encode("rwkv-world"), "tokenizer.ggml.eot_token_id": END_OF_TURN}
        | special
        | {f"tokenizer.ggml.{name}_token_id": END_OF_TEXT for name in ("bos", "eos")}
    )


def _escaped(folder: Folder, number: int, line: str) -> str:
    """Return a token's bytes in Python's escaped notation, without quotes."""
    try:
        literal = ast.literal_eval(line[line.index(" ") + 1 : line.rindex(" ")])
        token = literal.encode() if isinstance(literal, str) else literal
        if not isinstance(token, bytes) or len(token) != int(line[line.rindex(" ") :]):
            raise ValueError("the length does not match")
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise ConvertError(f"{folder.path / FILE}: line {number}: not a token: {error}") from None
    return repr(token)[2:-1]
