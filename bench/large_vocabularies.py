"""Vocabularies to measure and compare with, of thousands of tokens, trained on Python's own library.

Requires sentencepiece and protobuf.
"""

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "tokenizers"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def vocabulary(model: str, tokens: list[tuple[str, int]]) -> dict[str, Any]:
    return {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": [text for text, _ in tokens],
        "tokenizer.ggml.token_type": [kind for _, kind in tokens],
    }


def byte_tokens() -> list[tuple[str, int]]:
    return [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]


def unigram(texts: list[str], size: int) -> dict[str, Any]:
    """A model that SentencePiece trains, with the map of characters that T5 has."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, model_type="unigram", vocab_size=size,
        hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
        user_defined_symbols=["<tool>", "<tool_call>"], num_threads=1, minloglevel=2,
        normalization_rule_name="nmt_nfkc",
    )  # fmt: skip
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    metadata = vocabulary("t5", [(piece.piece, piece.type) for piece in proto.pieces]) | {
        "tokenizer.ggml.scores": [piece.score for piece in proto.pieces],
        "tokenizer.ggml.precompiled_charsmap": list(proto.normalizer_spec.precompiled_charsmap),
        "tokenizer.ggml.remove_extra_whitespaces": True,
        "tokenizer.ggml.add_space_prefix": True,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 2,
    }
    for i in range(9, 400, 50):  # tokens that cannot be chosen, or only seldom
        if metadata["tokenizer.ggml.token_type"][i : i + 1] == [NORMAL]:
            metadata["tokenizer.ggml.token_type"][i] = UNUSED
    return metadata


def rwkv(texts: list[str]) -> dict[str, Any]:
    """All bytes, and pieces of the texts as bytes, cut within characters too."""
    data = "\n\n".join(texts).encode()
    pieces = [bytes((byte,)) for byte in range(256)]
    pieces += [data[i : i + 2 + i % 7] for i in range(0, len(data), 5)]
    tokens = [("<s>", CONTROL), *((repr(piece)[2:-1], NORMAL) for piece in dict.fromkeys(pieces))]
    tokens += [("<tool>", USER_DEFINED), ("[PAD999]", UNUSED)]
    return vocabulary("rwkv", list(dict(tokens).items())) | {
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
    }


def plamo2(texts: list[str]) -> dict[str, Any]:
    """Pieces of the texts, with scores that tie in places."""
    control = [("<|plamo:unk|>", UNKNOWN), ("<|plamo:bos|>", CONTROL), ("<|plamo:eos|>", CONTROL)]
    control += [("<|plamo:pad|>", CONTROL), ("<|plamo:op|>", CONTROL), ("<tool>", USER_DEFINED), ("</s>", NORMAL)]
    text = "\n".join(texts)
    pieces = dict.fromkeys(text[i : i + 1 + i % 6] for i in range(0, len(text), 3))
    normal = [(piece, NORMAL) for piece in pieces if piece not in dict(control)]
    tokens = [*control, *byte_tokens(), *normal, ("[PAD1]", UNUSED)]
    scores = [0.0] * (len(control) + 256) + [-(i % 23) / 3 - len(piece) for i, (piece, _) in enumerate(normal)]
    return vocabulary("plamo2", tokens) | {
        "tokenizer.ggml.scores": [*scores, -999.0],  # llama.cpp takes -1000 for the end of its table
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.eot_token_id": 4,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
    }


def lines_of(texts: list[str]) -> list[str]:
    return [line for text in texts for line in text.split("\n") if line]


def library() -> list[str]:
    """Lines of Python's own library, and the texts of the tests' vocabularies."""
    texts = json.loads((FIXTURES / "pre.json").read_text())["texts"]
    folder = Path(random.__file__).parent
    return lines_of([*texts, *(path.read_text(errors="ignore") for path in sorted(folder.glob("[a-d]*.py")))])


LARGE_VOCABULARIES: dict[str, Callable[[], dict[str, Any]]] = {
    "unigram-nfkc": lambda: unigram(library(), 8000),
    "rwkv-large": lambda: rwkv(library()),
    "plamo2-large": lambda: plamo2(library()),
}
