"""Make tests/fixtures/tokenizers/*.json: small vocabularies, and the ids that llama.cpp gives for some texts.

    pip install gguf tokenizers llama-cpp-python
    python tests/make_fixtures/make_tokenizers.py

A file holds the ``metadata`` of a GGUF file, ``cases`` (a text, its ids with parse_special, and its ids with
add_special) and what each token prints. ``pre.json`` has the ids that every pre-tokenizer makes of the same texts.
"""

import ctypes
import itertools
import json
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import gguf
from llama_cpp import llama_cpp
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

OUT = Path(__file__).resolve().parents[1] / "fixtures" / "tokenizers"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

TEXTS = [
    "",
    " ",
    "   ",
    "\n",
    "\n\n",
    " \n \n\n  x",
    "Hello world",
    " Hello  world ",
    "Hello, y'all! I'LL go; they've 'd gone, it's 'S",
    "camelCase HTTPServer x_1 = a[i]+b->c; // note\r\n\tend",
    "1 12 123 1234 12345 1234567 3.14 ½ ² Ⅷ ٣٤٥",
    "Größe naïve ÀÉÎ École maÉcole ǅ ſ K İ ß",
    "Привет, мир! שלום العربية हिन्दी ไทยคำ 한국어 日本語テキスト中文字符。、！？",
    "e\u0301 q\u0307\u0323 🚀😶\u200d🌫️👨\u200d👩\u200d👧 $€+<=>^`|~ “q” …",
    "a\u00a0b\u2028c\u3000d\u0085e\x0bf\u200bg\ufeffh",
    "!!!\n\n???\r\n...  \n/ //\n",
    "<s>Hi</s><|eot_id|>x<tool><tool_call> y <tool_call>  z<unk>[CLS][MASK] [SEP]a",
    "<0x0A> ▁ ▁▁ Ġ ##ing <|end|>",
]


def main() -> None:
    llama_cpp.llama_log_set(_quiet, None)
    llama_cpp.llama_backend_init()
    OUT.mkdir(parents=True, exist_ok=True)
    for name, metadata in {
        "spm": spm(),
        "spm-phi3": spm() | {"general.name": "Phi-3 tiny"},
        "spm-no-prefix": spm() | {"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_eos_token": True},
        "bpe": bpe(),
        "bpe-gaps": bpe_with_gaps(),
        "gemma4": gemma4(),
        "wpm": wpm(),
        "wpm-cased": wpm() | {"tokenizer.ggml.normalizer.lowercase": False},
    }.items():
        reference = Reference(metadata)
        cases = [[text, reference.ids(text)] for text in TEXTS + random_texts(25)]
        write(name, {"metadata": metadata, "info": reference.info(), "cases": cases})
    write("pre", pre())


def write(name: str, content: Any) -> None:
    (OUT / f"{name}.json").write_text(json.dumps(content, separators=(",", ":"), ensure_ascii=True) + "\n")


def random_texts(n: int) -> list[str]:
    """Mixtures of pieces of the texts above."""
    rng = random.Random(7)
    pieces = [text[i : i + 5] for text in TEXTS for i in range(0, len(text), 5)]
    return ["".join(rng.choices(pieces, k=rng.randint(1, 8))) for _ in range(n)]


class Reference:
    """llama.cpp with a vocabulary and nothing else."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "vocab.gguf"
            write_gguf(path, metadata)
            params = llama_cpp.llama_model_default_params()
            params.vocab_only = True
            self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self._model:
            raise RuntimeError(f"llama.cpp does not load {metadata.get('tokenizer.ggml.pre')}")
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)

    def ids(self, text: str) -> list[list[int]]:
        data, buffer = text.encode(), (ctypes.c_int32 * 10000)()
        result = []
        for add_special, parse_special in ((False, True), (True, False)):
            n = llama_cpp.llama_tokenize(self._vocab, data, len(data), buffer, len(buffer), add_special, parse_special)
            result.append(list(buffer[:n]))
        return result

    def info(self) -> dict[str, Any]:
        n = llama_cpp.llama_vocab_n_tokens(self._vocab)
        return {
            "bos": llama_cpp.llama_vocab_bos(self._vocab),
            "eos": llama_cpp.llama_vocab_eos(self._vocab),
            "add_bos": llama_cpp.llama_vocab_get_add_bos(self._vocab),
            "add_eos": llama_cpp.llama_vocab_get_add_eos(self._vocab),
            "add_sep": llama_cpp.llama_vocab_get_add_sep(self._vocab),
            "eog": [i for i in range(n) if llama_cpp.llama_vocab_is_eog(self._vocab, i)],
            "pieces": [[i, self._piece(i, False), self._piece(i, True)] for i in (*range(0, n, 9), *range(n - 9, n))],
        }

    def _piece(self, token: int, special: bool) -> str:
        buffer = ctypes.create_string_buffer(256)
        n = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, special)
        return buffer.raw[:n].decode("latin-1")


@llama_cpp.llama_log_callback
def _quiet(level: int, text: bytes, data: Any) -> None:
    pass


def write_gguf(path: Path, metadata: dict[str, Any]) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    for key in ("context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count"):
        writer.add_uint32(f"llama.{key}", 8)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    for key, value in metadata.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


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


def pre() -> dict[str, Any]:
    """For every pre-tokenizer of Pumice's table: the ids of all texts, joined to one list a text."""
    from pumice.tokenizers.pre_tokenizers import ROWS

    metadata = bpe()
    expected: list[Any] = []
    names: dict[str, int] = {}
    for row in ROWS:
        for name in row.names if row.byte_level else ():
            reference = Reference(metadata | {"tokenizer.ggml.pre": name})
            found = [reference.ids(text)[1] for text in TEXTS]
            if found not in expected:
                expected.append(found)
            names[name] = expected.index(found)
    return {"texts": TEXTS, "names": names, "expected": expected}


if __name__ == "__main__":
    main()
