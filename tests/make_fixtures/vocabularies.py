"""Small vocabularies, one for each way of tokenizing, as the metadata of GGUF files; and texts that they cut.

Needs the packages tokenizers, sentencepiece and protobuf.
"""

import io
import itertools
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

TEXTS = [
    "", " ", "   ", "\n", "\n\n", " \n \n\n  x", "Hello world", " Hello  world ",
    "Hello, y'all! I'LL go; they've 'd gone, it's 'S", "camelCase HTTPServer x_1 = a[i]+b->c; // note\r\n\tend",
    "1 12 123 1234 12345 1234567 3.14 ½ ² Ⅷ ٣٤٥", "Größe naïve ÀÉÎ École maÉcole ǅ ſ K İ ß",
    "Привет, мир! שלום العربية हिन्दी ไทยคำ 한국어 日本語テキスト中文字符。、！？",
    "e\u0301 q\u0307\u0323 🚀😶\u200d🌫️👨\u200d👩\u200d👧 $€+<=>^`|~ “q” …",
    "a\u00a0b\u2028c\u3000d\u0085e\x0bf\u200bg\ufeffh", "!!!\n\n???\r\n...  \n/ //\n",
    "<s>Hi</s><|eot_id|>x<tool><tool_call> y <tool_call>  z<unk>[CLS][MASK] [SEP]a", "<0x0A> ▁ ▁▁ Ġ ##ing <|end|>",
]  # fmt: skip


MORE_TEXTS = {
    "unigram": [
        " \u3000a\u00a0 b\u200b \t", "q\u0307\u0323q\u0307", "\u1112\u1161\u11ab\u1112\u1161",
        "ｱｲｳ\U0001f999x\U0001f999",
    ],
    "plamo2": ["\ufeffx\ufeff", "x<tool>\ufeffy", "\U0001f999é\U0001f999日"],
    "hybriddna": [
        "<dna>GATTACAgattaca</dna>x<dna>acgn日ACGTAC", "</dna><dna></dna><dna>AAAAAA\n", "<dna> ACGTAC<dna></dna>",
    ],
}  # fmt: skip
"""Texts for one of the vocabularies alone."""


def random_texts(n: int) -> list[str]:
    """Mixtures of pieces of the texts above."""
    rng = random.Random(7)
    pieces = [text[i : i + 5] for text in TEXTS for i in range(0, len(text), 5)]
    return ["".join(rng.choices(pieces, k=rng.randint(1, 8))) for _ in range(n)]


def vocabulary(model: str, tokens: list[tuple[str, int]]) -> dict[str, Any]:
    return {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": [text for text, _ in tokens],
        "tokenizer.ggml.token_type": [kind for _, kind in tokens],
    }


def byte_tokens() -> list[tuple[str, int]]:
    return [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]


def spm() -> dict[str, Any]:
    """Characters, bytes, and merges by frequency, with scores that tie in places."""
    words = Counter(word for text in TEXTS for word in ("▁" + text.replace(" ", "▁")).split("\n"))
    pieces = [list(word) for word in words]
    learned: list[str] = []
    while len(learned) < 150:
        pairs = Counter(pair for piece in pieces for pair in itertools.pairwise(piece))
        left, right = max(pairs, key=lambda pair: (pairs[pair], pair))
        learned.append(left + right)
        pieces = [merge(piece, left, right) for piece in pieces]
    letters = sorted({char for word in words for char in word if char.isascii() or char == "▁"})
    control = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    added = [("<tool>", USER_DEFINED), ("<tool_call>", USER_DEFINED), ("<|end|>", NORMAL), ("<unused0>", UNUSED)]
    added.append(("<|endoftext|>", CONTROL))
    normal = dict.fromkeys(learned + letters)
    for text, _ in control + added:
        normal.pop(text, None)
    tokens = [*control, *byte_tokens(), *((text, NORMAL) for text in normal), *added]
    scores = [0.0] * (3 + 256) + [-float(i // 3) for i in range(len(normal))] + [0.0] * len(added)
    return vocabulary("llama", tokens) | {
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def merge(piece: list[str], left: str, right: str) -> list[str]:
    merged: list[str] = []
    for symbol in piece:
        if merged and merged[-1] == left and symbol == right:
            merged[-1] += symbol
        else:
            merged.append(symbol)
    return merged


def train(texts: list[str], size: int, byte_level: bool) -> tuple[list[str], list[str]]:
    """Tokens and merges; words are whole lines, so that tokens span what pre-tokenizers cut."""
    tokenizer = Tokenizer(models.BPE())
    alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else []
    if byte_level:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    return sorted(model["vocab"], key=model["vocab"].__getitem__), merges


def bpe(pre: str = "llama-bpe") -> dict[str, Any]:
    tokens, merges = train(TEXTS + random_texts(200), 700, byte_level=True)
    added = [
        ("<s>", CONTROL), ("</s>", CONTROL), ("<|eot_id|>", NORMAL), ("<tool>", USER_DEFINED),
        ("<tool_call>", USER_DEFINED), ("<|fim_pad|>", NORMAL), ("<|channel|>", CONTROL),
    ]  # fmt: skip
    normal = [text for text in tokens if text not in dict(added)]
    return vocabulary("gpt2", [*((text, NORMAL) for text in normal), *added]) | {
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.merges": [m for m in merges if m.replace(" ", "") not in dict(added)],
        "tokenizer.ggml.bos_token_id": len(normal),
        "tokenizer.ggml.eos_token_id": len(normal) + 1,
    }


def bpe_with_gaps() -> dict[str, Any]:
    """Some bytes have no token."""
    metadata = bpe("gpt-2")
    missing = set("eàĠ1")
    kept = [i for i, text in enumerate(metadata["tokenizer.ggml.tokens"]) if text not in missing]
    for key in ("tokens", "token_type"):
        metadata[f"tokenizer.ggml.{key}"] = [metadata[f"tokenizer.ggml.{key}"][i] for i in kept]
    metadata["tokenizer.ggml.merges"] = [
        pair for pair in metadata["tokenizer.ggml.merges"] if not missing & set(pair.split(" "))
    ]
    for key in ("bos", "eos"):
        metadata[f"tokenizer.ggml.{key}_token_id"] -= len(missing)
    return metadata


def gemma4() -> dict[str, Any]:
    """Merges over plain text, with ``▁`` for spaces and tokens for bytes."""
    lines = [line.replace(" ", "▁") for text in TEXTS[1:16] for line in text.split("\n") if line]
    tokens, merges = train(lines, 300, byte_level=False)
    normal = [text for text in tokens if ord(max(text)) < 0x3000 and text != "é"]
    merges = [pair for pair in merges if {*pair.split(" "), pair.replace(" ", "")} <= set(normal)]
    control = [("<pad>", CONTROL), ("<eos>", CONTROL), ("<bos>", CONTROL), ("<unk>", UNKNOWN)]
    added = [("\n", NORMAL), ("\n\n", NORMAL), ("<tool>", USER_DEFINED)]
    plain = [(text, NORMAL) for text in normal if text != "\n"]
    return vocabulary("gemma4", [*control, *byte_tokens(), *plain, *added]) | {
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.add_bos_token": False,
    }


def wpm() -> dict[str, Any]:
    special = [("[PAD]", CONTROL), ("[UNK]", CONTROL), ("[CLS]", CONTROL), ("[SEP]", CONTROL), ("[MASK]", CONTROL)]
    starts = [
        "hello", "Hello", "world", "the", "go", "they", "x", "1", "12", "3", "a", "n", "na", "gr", "e", "i", "it",
        ",", "!", "?", ".", "'", "\"", ";", "/", "$", "+", "<", ">", "|", "中", "文", "ᄒ", "ह", "п", "м", "b", "c",
    ]  # fmt: skip
    goes_on = ["l", "ll", "all", "one", "ing", "ve", "o", "oße", "osse", "ß", "1", "2", "34", "a", "i", "ive", "s", "d",
               "ир", "ривет", "न", "द", "c", "b", "e", "f", "g"]  # fmt: skip
    normal = [("▁" + text, NORMAL) for text in starts] + [(text, NORMAL) for text in goes_on]
    return vocabulary("bert", special + normal) | {
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3,
        "tokenizer.ggml.unknown_token_id": 1,
    }


NFC_LIKE = {
    "e\u0301": "é", "E\u0301": "É", "q\u0307\u0323": "q", "\u1112\u1161\u11ab": "한", "\u1112\u1161": "하", "ﬁ": "fi",
    "½": "1/2", "…": "...", "“": '"', "”": '"', "\u3000": " ", "\u00a0": " ", "\t": " ", "\u200b": "", "\ufeff": "",
    "Ⅷ": "VIII", "，": ", ", "a\u0300": "à",
}  # fmt: skip
"""Replacements for a small map of characters: one to one, to many and to none, and of several characters."""


def unigram(
    texts: list[str], size: int, replacements: dict[str, str] | None = None, remove_extra_whitespaces: bool = True
) -> dict[str, Any]:
    """A model that SentencePiece trains; without ``replacements``, with the map of characters that T5 has."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.tsv"
        rules.write_text(
            "".join(
                " ".join(f"{ord(char):X}" for char in part) + "\t" + " ".join(f"{ord(char):X}" for char in text) + "\n"
                for part, text in (replacements or {}).items()
            )
        )
        rule = {"normalization_rule_tsv": str(rules)} if replacements else {"normalization_rule_name": "nmt_nfkc"}
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=model, model_type="unigram", vocab_size=size,
            hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
            user_defined_symbols=["<tool>", "<tool_call>"],
            remove_extra_whitespaces=remove_extra_whitespaces, num_threads=1, minloglevel=2, **rule,
        )  # fmt: skip
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    metadata = vocabulary("t5", [(piece.piece, piece.type) for piece in proto.pieces]) | {
        "tokenizer.ggml.scores": [piece.score for piece in proto.pieces],
        "tokenizer.ggml.precompiled_charsmap": list(proto.normalizer_spec.precompiled_charsmap),
        "tokenizer.ggml.remove_extra_whitespaces": remove_extra_whitespaces,
        "tokenizer.ggml.add_space_prefix": True,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 2,
    }
    for i in range(9, 400, 50):  # tokens that cannot be chosen, or only seldom
        if metadata["tokenizer.ggml.token_type"][i : i + 1] == [NORMAL]:
            metadata["tokenizer.ggml.token_type"][i] = UNUSED
    return metadata


def lines_of(texts: list[str]) -> list[str]:
    return [line for text in texts for line in text.split("\n") if line]


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


def hybriddna() -> dict[str, Any]:
    metadata = bpe("qwen2") | {"tokenizer.ggml.model": "hybriddna"}
    k_mers = ["".join(letters) + "\ue000" for letters in itertools.product("ACGT", repeat=6)]
    more = ["<dna>", "</dna>", "<oov>", *k_mers[::7], "AAAAAA\ue000", "GATTAC\ue000"]
    metadata["tokenizer.ggml.tokens"] += dict.fromkeys(more)
    metadata["tokenizer.ggml.token_type"] += [NORMAL] * len(dict.fromkeys(more))
    return metadata


def whitespace() -> dict[str, Any]:
    """Merges over plain text, in which words have no spaces."""
    words = [word for text in TEXTS for word in text.split()]
    tokens, merges = train(words, 300, byte_level=False)
    added = [("<s>", CONTROL), ("</s>", CONTROL), ("<tool>", USER_DEFINED)]
    kept = [text for text in tokens if not set(text) & set("é日a") and text not in dict(added)]
    return vocabulary("whitespace", [*added, *((text, NORMAL) for text in kept)]) | {
        "tokenizer.ggml.pre": "whitespace",
        "tokenizer.ggml.merges": [pair for pair in merges if {*pair.split(" "), pair.replace(" ", "")} <= set(kept)],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }


VOCABULARIES: dict[str, Callable[[], dict[str, Any]]] = {
    "spm": spm, "spm-phi3": lambda: spm() | {"general.name": "Phi-3 tiny"},
    "spm-no-prefix": lambda: spm() | {"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_eos_token": True},
    "bpe": bpe, "bpe-gaps": bpe_with_gaps, "gemma4": gemma4, "wpm": wpm,
    "wpm-cased": lambda: wpm() | {"tokenizer.ggml.normalizer.lowercase": False},
    "unigram": lambda: unigram(lines_of(TEXTS), 250, NFC_LIKE),
    "unigram-spaces": lambda: unigram(lines_of(TEXTS), 250, NFC_LIKE, remove_extra_whitespaces=False),
    "rwkv": lambda: rwkv(TEXTS), "plamo2": lambda: plamo2(TEXTS), "hybriddna": hybriddna, "whitespace": whitespace,
    "whitespace-lower": lambda: whitespace() | {"tokenizer.ggml.normalizer.lowercase": True},
}  # fmt: skip
"""The small vocabularies, one for each way of tokenizing."""


def library() -> list[str]:
    """Lines of Python's own library, and the texts above."""
    folder = Path(random.__file__).parent
    return lines_of([*TEXTS, *(path.read_text(errors="ignore") for path in sorted(folder.glob("[a-d]*.py")))])


LARGE_VOCABULARIES: dict[str, Callable[[], dict[str, Any]]] = {
    "unigram-nfkc": lambda: unigram(library(), 8000),
    "rwkv-large": lambda: rwkv(library()),
    "plamo2-large": lambda: plamo2(library()),
}
"""Vocabularies to measure and compare with, of thousands of tokens; the first has the map of characters that T5 has."""
