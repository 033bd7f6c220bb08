"""The header of a model as its engine tells it, and as a process that was taken over could."""

import msgspec
import numpy as np
import pytest

from gguf_files import tiny_llama, write_gguf
from pumice.config import load_config
from pumice.errors import EngineError, ModelError
from pumice.gguf import GGUFFile
from pumice.model_files.summary import Summary
from pumice.process import confinement, header
from pumice.process.codec import REPORTS, CodecError, Summarized
from pumice.process.header import Header, PackedArray, Strings
from pumice.process.reader import read_summaries, read_vocabulary_problem
from pumice.spawning import spawner
from pumice.tokenizers import from_metadata

NOTHING = Summary({}, 0, 0, 0, "", 0.0, "")


def sent(told: Header) -> Header:
    report = REPORTS.decode(REPORTS.encode(Summarized(told)))
    assert isinstance(report, Summarized)
    return report.header


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("header") / "tiny.gguf")


def test_metadata_come_as_they_are_in_the_file(path):
    with GGUFFile.open(path) as file:
        metadata, summary = sent(Header.of(file.metadata, Summary.of(file))).read()
        assert summary == Summary.of(file)
        assert list(metadata) == list(file.metadata)
        for key, value in file.metadata.items():
            assert type(metadata[key]) is type(value)
            assert np.array_equal(metadata[key], value)
        assert not any(value.flags.writeable for value in metadata.values() if isinstance(value, np.ndarray))


def test_texts_that_are_not_utf8_stay_apart():
    texts = ["", "ä", "\udcff", "\udcfe\U0001f600", ""]
    metadata, _ = sent(Header.of({"a": texts, "nested": [[1]]}, NOTHING)).read()
    assert dict(metadata) == {"a": texts}


WRONG = [
    Strings(b"\x01", b"a"),
    Strings(b"\x02\x00\x00\x00", b"a"),
    Strings(b"\xff\xff\xff\xff" * 2, b"a"),
    Strings(b"\x00\x00\x00\x00" * (header.MAX_STRINGS + 1), b""),
    PackedArray("<f4", b"\x00" * 5),
    PackedArray("|O", b"\x00" * 8),
    PackedArray("V1000000", b""),
]


@pytest.mark.parametrize("value", WRONG)
def test_an_invalid_header_is_an_error(value):
    with pytest.raises(EngineError, match="the engine's process sent 'a' with a wrong type: the model's file"):
        sent(Header({"a": value}, NOTHING)).read()


def test_other_types_are_no_message():
    good = msgspec.msgpack.decode(REPORTS.encode(Summarized(Header({"a": 1}, NOTHING))))
    for wrong in ({"a": [1]}, {"a": None}, {1: 1}, [], {"a" * 1001: 1}):
        good[1][1] = wrong
        with pytest.raises(CodecError):
            REPORTS.decode(msgspec.msgpack.encode(good))


def test_a_header_is_bounded(monkeypatch):
    monkeypatch.setattr(header, "MAX_HEADER_BYTES", 100)
    with pytest.raises(ModelError, match="takes 113 bytes, but the limit is 100"):
        Header.of({"a": ["a" * 108]}, NOTHING)


def test_a_reader_reads_for_a_process_that_may_not(path, tmp_path):
    (tmp_path / "wrong.gguf").write_text("no model")
    with spawner():
        first, wrong, last = read_summaries([path, tmp_path / "wrong.gguf", path])
    assert wrong is None
    assert first == last == read_summaries([path])[0]
    with GGUFFile.open(path) as file:
        assert first == Summary.of(file)
        assert from_metadata(file.metadata)  # a model that is worth reading


def test_a_reader_says_what_is_wrong_with_a_vocabulary(path, tmp_path):
    damaged, without = tmp_path / "damaged.gguf", tmp_path / "without.gguf"
    tokens = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.scores": [0.0]}
    write_gguf(damaged, {"general.architecture": "llama", **tokens}, {})
    write_gguf(without, {"general.architecture": "llama"}, {})
    expected = ["", "tokenizer.ggml.scores has 1 values for 2 tokens", ""]
    assert [read_vocabulary_problem(file) for file in (path, damaged, without)] == expected
    with spawner():
        assert [read_vocabulary_problem(file) for file in (path, damaged, without)] == expected


def test_a_file_that_became_unreadable_is_called_by_its_name(tmp_path):
    (tmp_path / "wrong.gguf").write_text("no model")
    with spawner():
        problem = read_vocabulary_problem(tmp_path / "wrong.gguf")
    assert problem.startswith("wrong.gguf: ")


@pytest.mark.parametrize(
    ("vocabulary", "problem"),
    [
        ({"model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b", "ab"], "merges": ["a b", "a c"]}, "'a' and 'c'"),
        ({"model": "rwkv", "tokens": ["'\\x"]}, "has an escape that is not"),
    ],
    ids=["merges", "spellings"],
)
def test_a_reader_looks_at_parts_that_are_made_later(tmp_path, vocabulary, problem):
    metadata = {f"tokenizer.ggml.{name}": value for name, value in vocabulary.items()}
    write_gguf(tmp_path / "damaged.gguf", {"general.architecture": "llama", **metadata}, {})
    with spawner():
        assert problem in read_vocabulary_problem(tmp_path / "damaged.gguf")


def test_a_model_that_is_not_served_hides_no_other(path, tmp_path, monkeypatch):
    other = tiny_llama(tmp_path / "other.gguf")
    monkeypatch.setattr(confinement, "_kept", (load_config({}), [str(path)]))
    with spawner():
        first, refused, last = read_summaries([path, other, path])
    assert refused is None
    assert first == last == read_summaries([path])[0]


def test_a_header_that_cannot_be_told_hides_no_other(path, tmp_path):
    """For its size, for its keys; one that is larger than other messages may be is told."""
    files = []
    for key, text in (("k", "a" * (16 << 20)), ("k" * 1001, "a"), ("k", "\u6f22" * (6 << 20))):
        files.append(tmp_path / f"{len(files)}.gguf")
        write_gguf(files[-1], {"general.architecture": "llama", key: text}, {})
    with spawner():
        first, too_large, wrong, large, last = read_summaries([path, *files, path])
    assert first == last == read_summaries([path])[0]
    assert too_large is None
    assert wrong is None
    assert large
    assert len(large.metadata["k"]) == 6 << 20


def test_a_reader_that_ends_early_is_an_error(path, monkeypatch):
    monkeypatch.setattr(confinement, "_READER", "pumice.errors")
    with spawner(), pytest.raises(EngineError, match="the reader of headers ended before"):
        read_summaries([path])
