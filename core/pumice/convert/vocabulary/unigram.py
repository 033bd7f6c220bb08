"""Convert Unigram (Kudo 2018, arXiv:1804.10959), the tokenizer of T5 and XLM-RoBERTa."""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Any

from pumice.convert.folder import Folder
from pumice.convert.vocabulary.bpe import FILE, load_fast
from pumice.convert.vocabulary.sentencepiece import ModelFile, added_pieces
from pumice.convert.vocabulary.tokens import TokenList, TokenType
from pumice.convert.written import special_tokens
from pumice.gguf import encode

if TYPE_CHECKING:
    from pumice.convert.conversion import Conversion

FILES = ("tokenizer.model", "spiece.model")
SHIFTED = "sentencepiece.bpe.model"  # fairseq's, which puts its own tokens before SentencePiece's
FIRST = ("<s>", "<pad>", "</s>", "<unk>")


def unigram(folder: Folder, conversion: Conversion) -> dict[str, Any] | None:
    """Return the metadata of a Unigram tokenizer, or None if the folder has none."""
    for name in (*FILES, SHIFTED):
        if folder.has(name):
            model = ModelFile(folder.path / name)
            return _of_model(folder, conversion, model, name == SHIFTED) if model.is_unigram else None
    return _of_json(folder, conversion)


def _of_model(folder: Folder, conversion: Conversion, model: ModelFile, shifted: bool) -> dict[str, Any]:
    pieces = model.pieces()
    if shifted:
        types = (TokenType.CONTROL, TokenType.CONTROL, TokenType.CONTROL, TokenType.UNKNOWN)
        pieces = [*((text, 0.0, type) for text, type in zip(FIRST, types, strict=True)), *pieces[3:]]
    n_vocab = conversion.n_vocab(len(pieces))
    tokens = TokenList(max(n_vocab, len(pieces)) if shifted else n_vocab, scored=True)
    for id, (text, score, type) in enumerate(pieces):
        tokens.set(id, text, type, score)
    for id in range(len(pieces), tokens.n if shifted else 0):  # padding is numbered from SentencePiece's last id
        tokens.tokens[id] = b"[PAD%d]" % (id - 1)
    added_pieces(folder, tokens)
    tokens.add_control(conversion.steering_tokens())
    return _metadata(folder, conversion, tokens, model.adds_space, model.joins_spaces, model.charsmap)


def _of_json(folder: Folder, conversion: Conversion) -> dict[str, Any] | None:
    from tokenizers.models import Unigram

    tokenizer = load_fast(folder)
    if tokenizer is None or not isinstance(tokenizer.model, Unigram):
        return None
    file = folder.json(FILE)
    vocab, unknown = file["model"]["vocab"], file["model"].get("unk_id", len(FIRST) - 1)
    added = tokenizer.get_added_tokens_decoder()
    tokens = TokenList(max(conversion.n_vocab(len(vocab)), len(vocab)), scored=True)
    for id, (text, score) in enumerate(vocab):
        type = TokenType.UNKNOWN if id == unknown else TokenType.NORMAL
        if id in added and id != unknown:
            type = TokenType.CONTROL if added[id].special else TokenType.USER_DEFINED
        tokens.set(id, text, type, float(score))
    for id, token in added.items():
        if id >= len(vocab):
            tokens.add(id, token.content, token.special)
    tokens.add_control(conversion.steering_tokens())
    charsmap = b64decode(_find(file.get("normalizer"), "precompiled_charsmap") or "")
    cleans = folder.optional_json("tokenizer_config.json").get("clean_up_tokenization_spaces")
    prefixes = _find(file.get("pre_tokenizer"), "prepend_scheme") != "never"
    return _metadata(folder, conversion, tokens, prefixes, True if cleans is None else bool(cleans), charsmap)


def _metadata(
    folder: Folder, conversion: Conversion, tokens: TokenList, adds_space: bool, joins_spaces: bool, charsmap: bytes
) -> dict[str, Any]:
    keys = tokens.metadata("t5", "default") | {
        "tokenizer.ggml.add_space_prefix": adds_space,
        "tokenizer.ggml.remove_extra_whitespaces": joins_spaces,
    }
    if charsmap:
        keys["tokenizer.ggml.precompiled_charsmap"] = encode(list(charsmap), "u8[]")
    return keys | special_tokens(folder.path, conversion.architecture, tokens.n, merges=False)


def _find(part: Any, key: str) -> Any:
    """Return the value of a key in a step of processing, or in one of its inner steps."""
    if not isinstance(part, dict):
        return None
    inner = (*(part.get("normalizers") or ()), *(part.get("pretokenizers") or ()))
    return part.get(key) or next((value for step in inner if (value := _find(step, key))), None)
