"""Tokenizers of folders: token ids next to those of Hugging Face's library."""

import json

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import pumice
from checkpoints import FIXTURES
from pumice.convert.vocabulary.pre_tokenizer import HARD_TEXT, recognise
from pumice.tokenizers import PRE_TOKENIZERS

TEXTS = [*HARD_TEXT, "Once upon a time there was a little girl.", "<|im_start|>user\nHi<|im_end|>", "tokenizer weights"]


def steps(row):
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in row.patterns]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


@pytest.mark.parametrize("name", [name for name, row in PRE_TOKENIZERS.items() if row.byte_level])
def test_every_pre_tokenizer_is_recognised(name):
    row = PRE_TOKENIZERS[name]
    tokenizer = Tokenizer(models.BPE(ignore_merges=row.ignore_merges))
    tokenizer.pre_tokenizer = steps(row)
    assert recognise(tokenizer, preferred=(name,)) == name
    found = PRE_TOKENIZERS[recognise(tokenizer)]
    assert found.ignore_merges == row.ignore_merges
    words = [[span for _, span in steps(each).pre_tokenize_str(HARD_TEXT[0])] for each in (row, found)]
    assert words[0] == words[1]


def test_one_that_cuts_otherwise_is_not():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("[aeiou]"), "isolated")
    assert recognise(tokenizer) is None
    tokenizer.pre_tokenizer = None
    assert recognise(tokenizer) is None


def folder_of(path, tokenizer=None, **config):
    """A folder with nothing but a configuration and a tokenizer that can be converted: one without tensors."""
    path.mkdir(exist_ok=True)
    values = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2,
              "vocab_size": 600}  # fmt: skip
    (path / "config.json").write_text(json.dumps(values | config))
    header = json.dumps({"model.norm.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    if tokenizer:
        tokenizer.save(str(path / "tokenizer.json"))
    return path


def test_bpe_ids_are_the_librarys(tmp_path):
    theirs = Tokenizer.from_file(str(FIXTURES / "bpe" / "tokenizer.json"))
    ours = pumice.load_tokenizer(folder_of(tmp_path / "m", theirs, vocab_size=theirs.get_vocab_size() + 3))
    for text in TEXTS:
        assert ours.tokenize(text, add_special=False) == theirs.encode(text, add_special_tokens=False).ids


def test_ids_of_a_fast_sentencepiece_tokenizer_are_the_librarys(tmp_path):
    """Merges by their rank, though the file has scores alone."""
    theirs = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    theirs.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    theirs.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    theirs.train_from_iterator(TEXTS * 3, trainers.BpeTrainer(vocab_size=520, special_tokens=special[:3]))
    model = json.loads(theirs.to_str())["model"]
    vocab = {text: i for i, text in enumerate([*special, *(text for text in model["vocab"] if text not in special)])}
    theirs.model = models.BPE(
        vocab, [tuple(pair) for pair in model["merges"]], byte_fallback=True, unk_token="<unk>", fuse_unk=True
    )
    ours = pumice.load_tokenizer(folder_of(tmp_path / "m", theirs, vocab_size=len(vocab)))
    for text in [*TEXTS[-3:], "tricycle unhappily 12 34", "a  b", "naïve €"]:
        assert ours.tokenize(text, add_special=False) == theirs.encode(text, add_special_tokens=False).ids, text


def test_added_tokens(tmp_path):
    tokenizer = Tokenizer.from_file(str(FIXTURES / "bpe" / "tokenizer.json"))
    n = tokenizer.get_vocab_size()
    tokenizer.add_tokens(["<tool>"])
    tokenizer.add_special_tokens(["<stop>"])
    ours = pumice.load_tokenizer(folder_of(tmp_path / "m", tokenizer, vocab_size=n + 4))
    assert ours.tokenize("a<tool>b<stop>", add_special=False)[1::2] == [n, n + 1]
    assert n not in ours.tokenize("<tool>"[:-1], add_special=False)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"vocab_size": 4}, "has token 419, and the model is of 4 tokens"),
        ({"architectures": ["GemmaForCausalLM"], "intermediate_size": 4}, "has no tokenizer of gemma's kinds"),
    ],
)
def test_tokenizers_that_do_not_fit(tmp_path, config, message):
    tokenizer = Tokenizer.from_file(str(FIXTURES / "bpe" / "tokenizer.json"))
    with pytest.raises(pumice.PumiceError, match=message):
        pumice.load_tokenizer(folder_of(tmp_path / "m", tokenizer, **config))


@pytest.mark.parametrize("data", [b"\x0a\xff\xff\xff\xff\x7f", b"\x0a\x03\x12\x01a", b"\x0a\x02\x18\x63", b"\x0f"])
def test_a_broken_sentencepiece_model(tmp_path, data):
    folder = folder_of(tmp_path / "m")
    (folder / "tokenizer.model").write_bytes(data)
    with pytest.raises(pumice.PumiceError, match="is not a SentencePiece model"):
        pumice.load_tokenizer(folder)
