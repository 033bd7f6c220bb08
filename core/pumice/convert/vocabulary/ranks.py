"""Byte-level BPE as byte strings by rank: ``*.tiktoken``, ``tiktoken.model`` and Mistral's ``tekken.json``."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pumice.convert.folder import Folder
from pumice.convert.vocabulary.tokens import TokenList, TokenType, added_tokens
from pumice.convert.written import special_tokens
from pumice.errors import ConvertError
from pumice.gguf import encode
from pumice.tokenizers.bpe import BYTES

if TYPE_CHECKING:
    from pumice.convert.conversion import Conversion

BYTE_SYMBOLS = {byte: symbol for symbol, byte in BYTES.items()}
TEKKEN = "tekken.json"
TEKKEN_SPECIAL = {"bos": "<s>", "eos": "</s>", "unknown": "<unk>", "padding": "<pad>"}
# What Qwen's first tokenizer adds behind its ranks, which its code says alone.
QWEN_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205)))


def tiktoken(folder: Folder, conversion: Conversion) -> dict[str, Any] | None:
    """None where the folder has no such file."""
    path = next(
        (each for each in (*folder.path.glob("*.tiktoken"), folder.path / "tiktoken.model") if each.is_file()), None
    )
    if path is None:
        return None
    try:
        pairs = [line.split() for line in path.read_bytes().splitlines() if line]
        ranks = {b64decode(token, validate=True): int(rank) for token, rank in pairs}
    except ValueError as error:
        raise ConvertError(f"{path}: is no list of tokens and ranks: {error}") from None
    special = {text: id for id, text, _ in added_tokens(folder.optional_json("tokenizer_config.json"))}
    if not special and conversion.architecture == "qwen":
        special = {text: len(ranks) + i for i, text in enumerate(QWEN_SPECIAL)}
    tokens = TokenList(conversion.n_vocab(len(ranks) + len(special)))
    for token, rank in ranks.items():
        tokens.set(rank, letters(token), TokenType.NORMAL)
    for text, id in special.items():
        tokens.set(id, text, TokenType.CONTROL)
    found = tokens.metadata("gpt2", conversion.pre_tokenizers[0]) | {"tokenizer.ggml.merges": merges(ranks)}
    if conversion.architecture == "qwen":
        found |= {f"tokenizer.ggml.{name}_token_id": special[QWEN_SPECIAL[0]] for name in ("bos", "eos", "unknown")}
    return found | special_tokens(folder.path, conversion.architecture, tokens.n, merges=False)


def tekken(folder: Folder, conversion: Conversion) -> dict[str, Any] | None:
    """None where the folder has no ``tekken.json``, or a tokenizer of another kind besides."""
    if not folder.has(TEKKEN) or folder.has("tokenizer.json"):
        return None
    path = folder.path / TEKKEN
    file = folder.json(TEKKEN)
    try:
        config = file["config"]
        n_special = int(config["default_num_special_tokens"])
        n_vocab = int(config["default_vocab_size"])
        entries = file["vocab"][: n_vocab - n_special]
        ranks = {b64decode(each["token_bytes"], validate=True): int(each["rank"]) for each in entries}
        named = {int(each["rank"]): str(each["token_str"]) for each in file.get("special_tokens") or ()}
    except (KeyError, TypeError, ValueError) as error:
        raise ConvertError(f"{path}: is not a tokenizer of Mistral's: {type(error).__name__}: {error}") from None
    tokens = TokenList(n_vocab, scored=True)
    special = {id: named.get(id, f"<SPECIAL_{id}>") for id in range(n_special)}
    for id, text in special.items():
        tokens.set(id, text, TokenType.CONTROL, 0.0)
    for token, rank in ranks.items():
        tokens.set(n_special + rank, letters(token), TokenType.NORMAL, 0.0)
    ids = {text: id for id, text in special.items()}
    known = {f"tokenizer.ggml.{name}_token_id": ids[text] for name, text in TEKKEN_SPECIAL.items() if text in ids}
    template = special_tokens(folder.path, conversion.architecture, n_vocab, merges=False, types=())
    return (
        tokens.metadata("gpt2", "tekken")
        | {"tokenizer.ggml.merges": merges(ranks), "tokenizer.ggml.add_bos_token": True}
        | {"tokenizer.ggml.add_eos_token": False}
        | known
        | template
    )


def letters(token: bytes) -> str:
    """Bytes as the letters that stand for them in byte-level BPE."""
    return "".join(BYTE_SYMBOLS[byte] for byte in token)


def merges(ranks: Mapping[bytes, int]) -> Any:
    """What is merged into each token of several bytes: the last two parts of it that lower ranks make."""
    found = []
    for token, rank in ranks.items():
        if len(token) > 1:
            parts = _parts(ranks, token, rank)
            if len(parts) == 2:
                found.append(" ".join(map(letters, parts)))
    return encode(found, "str[]")


def _parts(ranks: Mapping[bytes, int], token: bytes, limit: int) -> list[bytes]:
    """A token cut by the merges of ranks below ``limit``."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while True:
        rank, at = min(
            ((ranks.get(a + b, limit), i) for i, (a, b) in enumerate(pairwise(parts))),
            default=(limit, 0),
        )
        if rank >= limit:
            return parts
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
