"""Convert byte-level BPE from ranks: ``*.tiktoken``, ``tiktoken.model`` and Mistral's ``tekken.json``."""

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
# Added tokens of Qwen's first tokenizer, which only its code defines.
QWEN_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205)))


def tiktoken(folder: Folder, conversion: Conversion) -> dict[str, Any] | None:
    """Return the metadata of a tiktoken file, or None if the folder has none."""
    candidates = (*folder.path.glob("*.tiktoken"), folder.path / "tiktoken.model")
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None:
        return None
    try:
        pairs = [line.split() for line in path.read_bytes().splitlines() if line]
        ranks = {b64decode(token, validate=True): int(rank) for token, rank in pairs}
    except ValueError as error:
        raise ConvertError(f"{path}: not a list of tokens and ranks: {error}") from None
    special = {text: id for id, text, _ in added_tokens(folder.optional_json("tokenizer_config.json"))}
    if not special and conversion.architecture == "qwen":
        special = {text: len(ranks) + i for i, text in enumerate(QWEN_SPECIAL)}
    tokens = TokenList(conversion.n_vocab(len(ranks) + len(special)))
    for token, rank in ranks.items():
        tokens.set(rank, letters(token), TokenType.NORMAL)
    for text, id in special.items():
        tokens.set(id, text, TokenType.CONTROL)
    metadata = tokens.metadata("gpt2", conversion.pre_tokenizers[0]) | {"tokenizer.ggml.merges": merges(ranks)}
    if conversion.architecture == "qwen":
        metadata |= {f"tokenizer.ggml.{name}_token_id": special[QWEN_SPECIAL[0]] for name in ("bos", "eos", "unknown")}
    return metadata | special_tokens(folder.path, conversion.architecture, tokens.n, merges=False)


def tekken(folder: Folder, conversion: Conversion) -> dict[str, Any] | None:
    """Return the metadata of ``tekken.json``; None without one, or beside a ``tokenizer.json``."""
    if not folder.has(TEKKEN) or folder.has("tokenizer.json"):
        return None
    path = folder.path / TEKKEN
    file = folder.json(TEKKEN)
    try:
        config = file["config"]
        n_special = int(config["default_num_special_tokens"])
        n_vocab = int(config["default_vocab_size"])
        entries = file["vocab"][: n_vocab - n_special]
        ranks = {b64decode(entry["token_bytes"], validate=True): int(entry["rank"]) for entry in entries}
        named = {int(entry["rank"]): str(entry["token_str"]) for entry in file.get("special_tokens") or ()}
    except (KeyError, TypeError, ValueError) as error:
        raise ConvertError(f"{path}: not a Mistral tokenizer: {type(error).__name__}: {error}") from None
    tokens = TokenList(n_vocab, scored=True)
    special = {id: named.get(id, f"<SPECIAL_{id}>") for id in range(n_special)}
    for id, text in special.items():
        tokens.set(id, text, TokenType.CONTROL, 0.0)
    for token, rank in ranks.items():
        tokens.set(n_special + rank, letters(token), TokenType.NORMAL, 0.0)
    ids = {text: id for id, text in special.items()}
    special_ids = {f"tokenizer.ggml.{name}_token_id": ids[text] for name, text in TEKKEN_SPECIAL.items() if text in ids}
    template = special_tokens(folder.path, conversion.architecture, n_vocab, merges=False, types=())
    return (
        tokens.metadata("gpt2", "tekken")
        | {"tokenizer.ggml.merges": merges(ranks), "tokenizer.ggml.add_bos_token": True}
        | {"tokenizer.ggml.add_eos_token": False}
        | special_ids
        | template
    )


def letters(token: bytes) -> str:
    """Return the letters that represent bytes in byte-level BPE."""
    return "".join(BYTE_SYMBOLS[byte] for byte in token)


def merges(ranks: Mapping[bytes, int]) -> Any:
    """Return the merge of each token with several bytes: its last two parts under merges of lower rank."""
    pairs = []
    for token, rank in ranks.items():
        if len(token) > 1:
            parts = _parts(ranks, token, rank)
            if len(parts) == 2:
                pairs.append(" ".join(map(letters, parts)))
    return encode(pairs, "str[]")


def _parts(ranks: Mapping[bytes, int], token: bytes, limit: int) -> list[bytes]:
    """Split a token by the merges of ranks below ``limit``."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while True:
        rank, position = min(
            ((ranks.get(a + b, limit), i) for i, (a, b) in enumerate(pairwise(parts))),
            default=(limit, 0),
        )
        if rank >= limit:
            return parts
        parts[position : position + 2] = [parts[position] + parts[position + 1]]
