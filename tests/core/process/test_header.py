"""The header of a model as its engine tells it, and as a process that was taken over could."""

import numpy as np
import pytest

from gguf_files import write_gguf
from pumice.errors import EngineError, ModelError
from pumice.gguf import GGUFFile
from pumice.model_files.summary import Summary
from pumice.process import header
from pumice.process.codec import REPORTS, Summarized
from pumice.process.header import Header, PackedArray, Strings
from pumice.process.reader import read_summaries, read_vocabulary_problem
from pumice.spawning import spawner
from pumice.tokenizers import from_metadata

NOTHING = Summary({}, 0, 0, 0, "", 0.0, "")


def sent(told: Header) -> Header:
    report = REPORTS.decode(REPORTS.encode(Summarized(told)))
    assert isinstance(report, Summarized)
    return report.header


def test_metadata_come_as_they_are_in_the_file(path):
    with GGUFFile.open(path) as file:
        metadata, summary = sent(Header.of(file.metadata, Summary.of(file))).read()
        assert summary == Summary.of(file)
        assert list(metadata) == list(file.metadata)
        for key, value in file.metadata.items():
            assert type(metadata[key]) is type(value)
            assert np.array_equal(metadata[key], value)
        assert not any(value.flags.writeable for value in metadata.values() if isinstance(value, np.ndarray))


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
