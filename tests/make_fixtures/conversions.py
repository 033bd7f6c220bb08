"""Make tests/fixtures/conversions: small checkpoints, transformers' logits, and llama.cpp's converter's files.

    python tests/make_fixtures/conversions.py path/to/llama.cpp [case...]

llama.cpp: its sources, with convert_hf_to_gguf.py. Without cases all are made, and the tokenizers too. A case is a
configuration; its weights follow from the names of tensors (tests/checkpoints.py), so that none are stored: of each
there are shapes, digests of the converted tensors and metadata, and logits after some tokens of PROMPT.
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
from conversion_cases import CASES
from conversions_written import WRITTEN as OLDER
from conversions_written_drafts import DRAFTS, FURTHER, SOUND
from conversions_written_more import MORE

from checkpoints import FIXTURES, N_GREEDY, N_TOKENS, PROMPT, PROMPTS, ROWS, TEXTS, write_checkpoint

WRITTEN = DRAFTS | SOUND | FURTHER | MORE | OLDER


def main(sources: Path, names: list[str]) -> None:
    sys.path.insert(0, str(sources))
    os.environ["HF_HUB_OFFLINE"] = "1"
    if not names:
        make_tokenizers()
    path = FIXTURES / "cases.json"
    cases = json.loads(path.read_text()) if names else {}
    logits = dict(np.load(FIXTURES / "logits.npz")) if names else {}
    for name in names or (*CASES, *WRITTEN):
        logits.pop(name, None)
        if name in WRITTEN:
            cases[name] = make_written(name)
        else:
            cases[name], values = make_case(name)
            logits |= {} if values is None else {name: values}
        print(name, len(cases[name]["shapes"]), "tensors")
    path.write_text(json.dumps(cases, indent=None, separators=(",", ":")).replace('},"', '},\n"') + "\n")
    np.savez_compressed(FIXTURES / "logits.npz", **logits)


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


def make_case(name: str) -> tuple[dict[str, Any], Any]:
    """Return the stored form of a case, and transformers' logits [ROWS of PROMPT, n_vocab], if there are any."""
    import torch
    import transformers

    case = CASES[name]
    cls = getattr(transformers, case.model)
    model = cls(cls.config_class(**case.common | case.own)).eval()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model.to(torch.bfloat16).save_pretrained(folder)
        values = json.loads((Path(folder) / "config.json").read_text()) | case.written
        shapes = stored_shapes(Path(folder) / "model.safetensors")
        types = stored_integers(Path(folder) / "model.safetensors")
        write_checkpoint(Path(folder) / name, values, shapes, case.tokenizer, types)
        logits, texts = None, []
        theirs = converted(Path(folder) / name, case.options + write_target(Path(folder), case.target))
        if case.tokens:
            model = cls.from_pretrained(Path(folder) / name, dtype=torch.float32).eval()
            logits = model(torch.tensor([PROMPT])).logits[0].numpy()[ROWS].astype(np.float16)
            texts = [] if theirs else [greedy(model, prompt) for prompt in PROMPTS]
    found = {"config": values, "tokenizer": case.tokenizer, "shapes": shapes, "theirs": theirs}
    rest = {"types": types, "target": case.target, "greedy": texts}
    return found | {key: value for key, value in rest.items() if value}, logits


def greedy(model: Any, prompt: list[int]) -> list[int]:
    """Return the most probable tokens after a prompt, each of whose steps reads all tokens anew."""
    import torch

    ids = list(prompt)
    while len(ids) < len(prompt) + N_GREEDY:
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt) :]


def make_written(name: str) -> dict[str, Any]:
    """Return the stored form of a case that transformers does not know."""
    case = WRITTEN[name]
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder) / name, case.config, case.shapes, case.tokenizer, case.types, case.modules)
        theirs = converted(Path(folder) / name, case.options + write_target(Path(folder), case.target))
    found = {"config": case.config, "tokenizer": case.tokenizer, "shapes": case.shapes, "theirs": theirs}
    outtype = {"type": case.options[1].upper()} if "--outtype" in case.options else {}
    more = {"types": case.types, "target": case.target, "modules": case.modules}
    return found | outtype | {key: value for key, value in more.items() if value}


def write_target(folder: Path, name: str) -> tuple[str, ...]:
    """The folder of the model that a draft is for, and how llama.cpp's converter is told."""
    if not name:
        return ()
    case = WRITTEN.get(name)
    if case is None:
        case = json.loads((FIXTURES / "cases.json").read_text())[name]
        write_checkpoint(folder / "target", case["config"], case["shapes"], case["tokenizer"])
    else:
        write_checkpoint(folder / "target", case.config, case.shapes, case.tokenizer, case.types)
    return ("--target-model-dir", str(folder / "target"))


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
