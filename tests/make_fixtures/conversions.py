"""Make tests/fixtures/conversions: small checkpoints, transformers' logits, and llama.cpp's converter's files.

    python tests/make_fixtures/conversions.py path/to/llama.cpp [case...]
    python tests/make_fixtures/conversions.py path/to/llama.cpp --add case path/to/checkpoint tokenizer [class]

llama.cpp: its sources, with convert_hf_to_gguf.py. Without cases all are made, and the tokenizers too. A case is a
configuration and shapes, added from a checkpoint; its weights follow from the names of tensors (tests/checkpoints.py),
so that none are stored: of each there are digests of the converted tensors and metadata, and, with a class of
transformers', logits after some tokens of PROMPT.
Further fields of a case are written into cases.json by hand: options of the converter, and the target of a draft.
The converter knows pre-tokenizers by digests of tokenizers that are in use; here it is told one.
"""

import hashlib
import json
import logging
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from checkpoints import FIXTURES, N_GREEDY, N_TOKENS, PROMPT, PROMPTS, ROWS, TEXTS, checkpoint_of, write_cases

CASES = FIXTURES / "cases.json"
Stored = dict[str, Any]
INPUTS = ("config", "tokenizer", "shapes", "types", "modules", "class", "target", "options", "type")


def main(sources: Path, names: list[str]) -> None:
    sys.path.insert(0, str(sources))
    os.environ["HF_HUB_OFFLINE"] = "1"
    cases = json.loads(CASES.read_text())
    if names[:1] == ["--add"]:
        name, *rest = names[1:]
        cases[name], names = read_case(*rest), [name]
    if not names:
        make_tokenizers()
    logits = dict(np.load(FIXTURES / "logits.npz"))
    for name in names or cases:
        cases[name], values = make_case(name, cases)
        logits |= {} if values is None else {name: values}
        print(name, len(cases[name]["shapes"]), "tensors")
    write_cases(CASES, cases)
    make_variants(cases)
    np.savez_compressed(FIXTURES / "logits.npz", **logits)


def read_case(folder: str, tokenizer: str, model_class: str = "") -> Stored:
    """Return the configuration and the shapes of a checkpoint."""
    path = Path(folder) / "model.safetensors"
    config = json.loads(path.with_name("config.json").read_text())
    found = {"config": config, "tokenizer": tokenizer, "shapes": stored_shapes(path)}
    rest = {"types": stored_integers(path), "class": model_class}
    return found | {key: value for key, value in rest.items() if value}


def make_tokenizers() -> None:
    """A tokenizer of N_TOKENS tokens of each kind, trained on this text."""
    text = Path(__file__).read_text()
    for kind in ("bpe", "gemma4", "plamo", "rwkv", "spm", "unigram", "wordpiece"):
        (FIXTURES / kind).mkdir(parents=True, exist_ok=True)
    make_bpe(text)
    make_bytes_bpe(text)
    make_wordpiece(text)
    make_rwkv(text)
    make_plamo(text)
    make_sentencepiece(text, "bpe", FIXTURES / "spm" / "tokenizer.model")
    make_sentencepiece(text, "unigram", FIXTURES / "unigram" / "spiece.model")
    (FIXTURES / "ids.json").write_text(json.dumps(sentencepiece_ids(), ensure_ascii=False))
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
              "add_bos_token": True, "chat_template": "{{ messages }}"}  # fmt: skip
    (FIXTURES / "spm" / "tokenizer_config.json").write_text(json.dumps(config))
    (FIXTURES / "unigram" / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "unk_token": "<unk>"}))


def sentencepiece_ids() -> dict[str, dict[str, list[int]]]:
    """Return the ids of some texts by each of SentencePiece's kinds."""
    import sentencepiece

    files = {"unigram": FIXTURES / "unigram" / "spiece.model", "spm": FIXTURES / "spm" / "tokenizer.model"}
    found = {}
    for kind, path in files.items():
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        found[kind] = {text: processor.encode(text) for text in TEXTS}
    return found


def make_bpe(text: str) -> None:
    """Byte-level BPE."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        [text], trainers.BpeTrainer(vocab_size=N_TOKENS, special_tokens=special, initial_alphabet=alphabet)
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token=special[0], eos_token=special[0])
    fast.save_pretrained(FIXTURES / "bpe")


def make_bytes_bpe(text: str) -> None:
    """BPE of characters, with bytes for those that it does not have, as Gemma 4 has it."""
    from tokenizers import Tokenizer, decoders, models, normalizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<|channel>", "<channel|>"]
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Replace(" ", "\u2581")
    trained.train_from_iterator([text], trainers.BpeTrainer(vocab_size=N_TOKENS + 4 - 256, special_tokens=special))
    model = json.loads(trained.to_str())["model"]
    pieces = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), *(t for t in model["vocab"] if t not in special)]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    merges = [tuple(pair) for pair in model["merges"]]
    bpe = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    bpe.normalizer = normalizers.Replace(" ", "\u2581")
    bpe.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    names = dict(zip(("pad_token", "eos_token", "bos_token", "unk_token"), special, strict=False))
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, **names, additional_special_tokens=special[4:])
    fast.save_pretrained(FIXTURES / "gemma4")


def make_wordpiece(text: str) -> None:
    """BERT's."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertTokenizerFast

    wordpiece = BertWordPieceTokenizer()
    wordpiece.train_from_iterator([text], vocab_size=N_TOKENS, min_frequency=1)
    BertTokenizerFast(tokenizer_object=wordpiece._tokenizer).save_pretrained(FIXTURES / "wordpiece")


def make_rwkv(text: str) -> None:
    """All bytes, and the most frequent words of a text: a token, its place and its length in each line."""
    counts = Counter(re.findall(r" ?[a-z]+|\n\n|é", text + "é"))
    words = [word for word, _ in counts.most_common(N_TOKENS - 257) if len(word.encode()) > 1]
    tokens: list[str | bytes] = [bytes([byte]) if byte > 127 else chr(byte) for byte in range(256)] + words
    sizes = [len(token.encode() if isinstance(token, str) else token) for token in tokens]
    lines = [f"{i} {token!r} {size}\n" for i, (token, size) in enumerate(zip(tokens, sizes, strict=True), 1)]
    (FIXTURES / "rwkv" / "rwkv_vocab_v20230424.txt").write_text("".join(lines))


def make_plamo(text: str) -> None:
    """Special tokens, all bytes, and the most frequent words of a text, with scores."""
    special = [
        ["<|plamo:unk|>", 0.0, "UNKNOWN"],
        *([f"<|plamo:{name}|>", 0.0, "CONTROL"] for name in ("bos", "eos", "pad")),
    ]
    special.append(["<|plamo:op|>", 0.0, "NORMAL"])
    words = Counter(re.findall(r"[a-z]+|[^a-z]", text)).most_common(N_TOKENS - 256 - len(special))
    rows = [*special, *([f"<0x{byte:02X}>", -20.0, "BYTE"] for byte in range(256))]
    rows += [[word, -float(rank), "NORMAL"] for rank, (word, _) in enumerate(words, 1)]
    lines = [json.dumps([*row, None], ensure_ascii=False) for row in rows]
    (FIXTURES / "plamo" / "tokenizer.jsonl").write_text("\n".join(lines) + "\n")
    names = {"bos_token": "<|plamo:bos|>", "eos_token": "<|plamo:eos|>", "unk_token": "<|plamo:unk|>"}
    (FIXTURES / "plamo" / "tokenizer_config.json").write_text(json.dumps(names))


def make_sentencepiece(text: str, kind: str, path: Path) -> None:
    """SentencePiece's, of either kind."""
    import sentencepiece

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "text.txt"
        source.write_text(text)
        rules = Path(folder) / "rules.tsv"
        rules.write_text("FB01\t66 69\nA0\t20\n")  # the ligature fi, a space that does not break
        normal = (
            {"normalization_rule_tsv": str(rules)} if kind == "unigram" else {"normalization_rule_name": "identity"}
        )
        sentencepiece.SentencePieceTrainer.train(
            input=str(source), model_prefix=str(Path(folder) / "spm"), vocab_size=N_TOKENS, model_type=kind,
            byte_fallback=kind == "bpe", hard_vocab_limit=False, pad_id=-1, user_defined_symbols=["<start_of_turn>"],
            minloglevel=2, **normal,
        )  # fmt: skip
        path.write_bytes((Path(folder) / "spm.model").read_bytes())


def make_case(name: str, cases: dict[str, Stored]) -> tuple[Stored, Any]:
    """Return the stored form of a case, and transformers' logits [ROWS of PROMPT, n_vocab], if there are any."""
    case = {key: value for key, value in cases[name].items() if key in INPUTS}
    logits, texts = None, []
    with tempfile.TemporaryDirectory() as folder:
        path, target, options = Path(folder) / name, Path(folder) / "target", case.get("options", [])
        checkpoint_of(path, case)
        if "target" in case:
            checkpoint_of(target, cases[case["target"]])
            options = [*options, "--target-model-dir", str(target)]
        theirs = converted(path, options)
        if "class" in case:
            model = load(path, case["class"])
            logits = logits_of(model, PROMPT)[ROWS].astype(np.float16)
            texts = [] if theirs else [greedy(model, prompt) for prompt in PROMPTS]
    return case | {"theirs": theirs} | ({"greedy": texts} if texts else {}), logits


def make_variants(cases: dict[str, Stored]) -> None:
    """Store transformers' last logits for cases with other values in their configurations, those of variants.json."""
    variants, logits = json.loads((FIXTURES / "variants.json").read_text()), {}
    for name, values in variants.items():
        with tempfile.TemporaryDirectory() as folder:
            checkpoint_of(Path(folder), cases[name], **values)
            logits[name] = logits_of(load(Path(folder), cases[name]["config"]["architectures"][0]), PROMPT)[-1].astype(
                np.float16
            )
    np.savez_compressed(FIXTURES / "variants.npz", **logits)


def load(path: Path, model_class: str) -> Any:
    """Return a folder's model as a class of transformers has it."""
    import torch
    import transformers

    return getattr(transformers, model_class).from_pretrained(path, dtype=torch.float32).eval()


def logits_of(model: Any, ids: list[int]) -> Any:
    """Return a model's logits [tokens, n_vocab]."""
    import torch

    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def greedy(model: Any, prompt: list[int]) -> list[int]:
    """Return the most probable tokens after a prompt, each of whose steps reads all tokens anew."""
    ids = list(prompt)
    while len(ids) < len(prompt) + N_GREEDY:
        ids.append(int(logits_of(model, ids)[-1].argmax()))
    return ids[len(prompt) :]


def stored_shapes(path: Path) -> dict[str, list[int]]:
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    return {key: value["shape"] for key, value in header.items() if key != "__metadata__"}


def stored_integers(path: Path) -> dict[str, tuple[str, list[int]]]:
    """The tensors of numbers that are not weights."""
    import torch
    from safetensors.torch import load_file

    integers = {name: values for name, values in load_file(path).items() if values.dtype is torch.int64}
    return {name: ("I64", values.tolist()) for name, values in integers.items()}


def converted(folder: Path, options: Sequence[str] = ()) -> dict[str, Any] | None:
    """Return llama.cpp's conversion of a folder: metadata, and type, shape and digest of each tensor.

    None where it fails, since it knows an older transformers' names, or wants a tokenizer's own code.
    """
    import convert_hf_to_gguf
    from conversion.base import TextModel

    from pumice.gguf import GGUFFile

    logging.disable(logging.INFO)
    TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
    out = folder.with_suffix(".gguf")
    files = dict.fromkeys(stored_shapes(folder / "model.safetensors"), "model.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))  # some classes read it
    sys.argv = ["convert_hf_to_gguf.py", str(folder), "--outfile", str(out), *options]
    try:
        convert_hf_to_gguf.main()
    except (KeyError, AssertionError, AttributeError, SystemExit) as error:
        print(f"{folder.name}: llama.cpp's converter needs {error!r}")
        return None
    with GGUFFile.open(out) as file:
        return {
            "metadata": {key: described(key, file.metadata.encoded(key)) for key in file.metadata},
            "tensors": {
                name: [tensor.type.name, list(tensor.shape), hashlib.sha256(tensor.data).hexdigest()[:16]]
                for name, tensor in file.tensors.items()
            },
        }


def described(key: str, value: Any) -> str:
    """The type and the bytes of a value, long ones by their digest."""
    data = value.data.hex() if len(value.data) <= 64 else hashlib.sha256(value.data).hexdigest()[:16]
    return f"{value.type_name} {data}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
