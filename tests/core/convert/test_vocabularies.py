"""Tokenizers of folders: token ids next to those of Hugging Face's library."""

import json
from base64 import b64encode

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import checkpoints
import pumice
from checkpoints import FIXTURES, write_tokenizer
from pumice.config import load_config
from pumice.convert.vocabulary.pre_tokenizer import HARD_TEXT, recognise
from pumice.errors import ConvertError
from pumice.model_files.opening import open_model
from pumice.registry import load_registry
from pumice.tokenizers import PRE_TOKENIZERS, PreTokenizer
from pumice.tokenizers.bpe import BYTES

N_SPECIAL = 3  # tokens of the fixture of byte-level BPE before all others
T5 = {
    "d_model": 8, "d_ff": 8, "d_kv": 4, "num_heads": 2, "num_layers": 1, "relative_attention_num_buckets": 4,
    "layer_norm_epsilon": 1e-6,
}  # fmt: skip
IDS = json.loads((FIXTURES / "ids.json").read_text())
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
    if row.add_bos:  # as the tokenizer of a folder says
        tokenizer.add_special_tokens(["<s>"])
        tokenizer.post_processor = processors.TemplateProcessing("<s> $0", special_tokens=[("<s>", 0)])
    found = PRE_TOKENIZERS[recognise(tokenizer)]
    assert (found.ignore_merges, found.add_bos) == (row.ignore_merges, row.add_bos)
    words = [[span for _, span in steps(each).pre_tokenize_str(HARD_TEXT[0])] for each in (row, found)]
    assert words[0] == words[1]


def trained(pattern):
    """Byte-level BPE that cuts text by a pattern of its own."""
    tokenizer = Tokenizer(models.BPE())
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([*TEXTS] * 4, trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet))
    return tokenizer


def test_an_unknown_pre_tokenizer_is_refused_with_what_is_nearest_unless_a_plugin_knows_it(tmp_path):
    pattern = PRE_TOKENIZERS["llama-bpe"].patterns[0].replace(r"\p{N}{1,3}", r"\p{N}{1,5}")
    folder = folder_of(tmp_path / "m", trained(pattern), vocab_size=500)
    with pytest.raises(
        ConvertError,
        match=r"unknown pre-tokenizer \(the most similar one, 'llama.*', splits off ' ?444' instead of '4444'",
    ):
        open_model(folder)

    class Plugin:
        @pumice.plugin.hookimpl
        def pumice_register_pre_tokenizers(self, register):
            register("five", PreTokenizer(patterns=(pattern,)))

    with open_model(folder, load_registry(load_config(), [Plugin()])) as file:
        assert file.metadata["tokenizer.ggml.pre"] == "five"


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
    theirs = sentencepiece_tokenizer()
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    theirs.train_from_iterator(TEXTS * 3, trainers.BpeTrainer(vocab_size=520, special_tokens=special[:3]))
    model = json.loads(theirs.to_str())["model"]
    vocab = {text: i for i, text in enumerate([*special, *(text for text in model["vocab"] if text not in special)])}
    theirs = sentencepiece_tokenizer(vocab, [tuple(pair) for pair in model["merges"]])
    ours = pumice.load_tokenizer(folder_of(tmp_path / "m", theirs, vocab_size=len(vocab)))
    for text in [*TEXTS[-3:], "tricycle unhappily 12 34", "a  b", "naïve €"]:
        assert ours.tokenize(text, add_special=False) == theirs.encode(text, add_special_tokens=False).ids, text


PLAIN = "once upon a time there was a little tokenizer that wrote weights, names and numbers"


def ranks(tokenizer):
    """The tokens of the fixture as byte strings, without the special ones before them."""
    ordered = sorted(tokenizer.get_vocab().items(), key=lambda each: each[1])
    return [bytes(BYTES[symbol] for symbol in text) for text, _ in ordered[N_SPECIAL:]]


def test_ids_of_tiktokens_files_are_those_of_their_ranks(tmp_path):
    """Merges, which such a file does not have, follow from its ranks."""
    theirs = Tokenizer.from_file(str(FIXTURES / "bpe" / "tokenizer.json"))
    lines = [b"%s %d" % (b64encode(token), rank) for rank, token in enumerate(ranks(theirs))]
    folder = folder_of(tmp_path / "m", architectures=["QWenLMHeadModel"])
    (folder / "qwen.tiktoken").write_bytes(b"\n".join(lines) + b"\n")
    ours = pumice.load_tokenizer(folder)
    expected = [id - N_SPECIAL for id in theirs.encode(PLAIN, add_special_tokens=False).ids]
    assert ours.tokenize(PLAIN, add_special=False) == expected
    assert ours.tokenize("<|im_start|>", add_special=False) == [len(lines) + 1]
    (folder / "qwen.tiktoken").write_bytes(b"IQ==\n")
    with pytest.raises(pumice.PumiceError, match=r"qwen\.tiktoken: not a list of tokens and ranks"):
        pumice.load_tokenizer(folder)


def test_ids_of_mistrals_files_are_those_of_their_ranks(tmp_path):
    theirs = Tokenizer.from_file(str(FIXTURES / "bpe" / "tokenizer.json"))
    vocab = [{"rank": i, "token_bytes": b64encode(token).decode()} for i, token in enumerate(ranks(theirs))]
    n_special = 10
    special = [{"rank": i, "token_str": text} for i, text in enumerate(("<unk>", "<s>", "</s>", "[INST]"))]
    config = {"default_vocab_size": n_special + len(vocab), "default_num_special_tokens": n_special}
    folder = folder_of(tmp_path / "m")
    (folder / "tekken.json").write_text(json.dumps({"config": config, "vocab": vocab, "special_tokens": special}))
    ours = pumice.load_tokenizer(folder)
    expected = [id - N_SPECIAL + n_special for id in theirs.encode(PLAIN, add_special_tokens=False).ids]
    assert ours.tokenize(PLAIN) == [1, *expected]
    assert ours.tokenize("[INST]", add_special=False) == [3]
    (folder / "tekken.json").write_text("{}")
    with pytest.raises(pumice.PumiceError, match=r"tekken\.json: not a Mistral tokenizer"):
        pumice.load_tokenizer(folder)


def test_ids_of_wordpiece_are_the_librarys(tmp_path):
    folder = folder_of(tmp_path / "m", architectures=["BertModel"])
    write_tokenizer(folder, "wordpiece")
    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ours = pumice.load_tokenizer(folder)
    for text in checkpoints.TEXTS:
        assert ours.tokenize(text, add_special=False) == theirs.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", IDS)
def test_ids_of_sentencepiece_are_its_own(tmp_path, kind):
    folder = folder_of(tmp_path / "m", architectures=["T5EncoderModel"], **T5)
    write_tokenizer(folder, kind)
    ours = pumice.load_tokenizer(folder)
    for text, ids in IDS[kind].items():
        assert ours.tokenize(text, add_special=False) == ids, text


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
        ({"vocab_size": 4}, "token id 419 exceeds the model's 4 tokens"),
        ({"architectures": ["GemmaForCausalLM"], "intermediate_size": 4}, "no tokenizer of a kind that gemma uses"),
    ],
)
def test_tokenizers_that_do_not_fit(tmp_path, config, message):
    tokenizer = Tokenizer.from_file(str(FIXTURES / "bpe" / "tokenizer.json"))
    with pytest.raises(pumice.PumiceError, match=message):
        pumice.load_tokenizer(folder_of(tmp_path / "m", tokenizer, **config))


@pytest.mark.parametrize(
    "data", [b"\x0a\xff\xff\xff\xff\x7f", b"\x0a\x03\x12\x01a", b"\x0a\x02\x18\x63", b"\x0f", b"\x1a\x02\x10\x00"]
)
def test_a_broken_sentencepiece_model(tmp_path, data):
    folder = folder_of(tmp_path / "m")
    (folder / "tokenizer.model").write_bytes(data)
    with pytest.raises(pumice.PumiceError, match="not a SentencePiece model"):
        pumice.load_tokenizer(folder)


def sentencepiece_tokenizer(vocab=None, merges=None):
    theirs = Tokenizer(models.BPE(vocab, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    theirs.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    theirs.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return theirs


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece"])
def test_settings_of_batches_and_training_change_no_token(tmp_path, kind):
    fixture = FIXTURES / "bpe" / "tokenizer.json"
    texts = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a"]
    small = {text: i for i, text in enumerate(texts)}, [("▁", "a")]
    theirs = Tokenizer.from_file(str(fixture)) if kind == "bpe" else sentencepiece_tokenizer(*small)
    theirs.add_special_tokens(["[CLS]", "[SEP]", "[PAD]"])
    theirs.add_tokens([AddedToken("two words", normalized=False), AddedToken("plain", normalized=True)])
    config = {"vocab_size": theirs.get_vocab_size() + 2}
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    folders = [tmp_path / "plain", tmp_path / "batches"]
    folder_of(folders[0], theirs, **config)
    theirs.enable_padding(length=128, pad_id=theirs.token_to_id("[PAD]"), pad_token="[PAD]")
    theirs.enable_truncation(1)
    theirs.model.dropout = 0.5
    folder_of(folders[1], theirs, **config)
    for folder in folders:
        (folder / "tokenizer_config.json").write_text(json.dumps(names))
    plain, batches = map(pumice.load_tokenizer, folders)
    for id in range(config["vocab_size"]):
        assert batches.token_text(id) == plain.token_text(id)
    for token in ("two words", "plain"):
        assert batches.token_text(theirs.token_to_id(token)).strip(" ▁") == token
    for text in ("[CLS]two words[PAD]", "a plain aab"):
        assert batches.tokenize(text, add_special=False) == plain.tokenize(text, add_special=False)
