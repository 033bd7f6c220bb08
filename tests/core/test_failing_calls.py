"""Operations on files whose calls to the system fail, one after the other."""

import errno
import json
import shutil
import threading
from unittest.mock import patch

import numpy as np
import pytest

from checkpoints import FIXTURES, checkpoint_of
from failing_calls import check_every_call
from gguf_files import tiny_llama
from hub_server import Repository, content
from nightly import variants
from pumice.cache_tiers.disk import DiskTier
from pumice.cache_tiers.entry import Entry
from pumice.cache_tiers.files import SECRET_BYTES
from pumice.cli.chat.conversation import Conversation
from pumice.convert import write_model
from pumice.gguf import GGUFFile, encode
from pumice.gguf.edit import edit
from pumice.hub import fetch, locate
from pumice.hub.created import create_model, created_models, remove_created
from pumice.model_files.opening import open_model
from pumice.quantize import quantize
from pumice_cpu import cache

CASE = json.loads((FIXTURES / "cases.json").read_text())["llama-bpe"]
MAPS = ("pumice.gguf.parser.mmap",)
pytestmark = pytest.mark.property  # which has more errors at night


@pytest.fixture
def model(tmp_path):
    return tiny_llama(tmp_path / "source.gguf", n_layer=1)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_a_file_is_read(model):
    def read():
        with GGUFFile.open(model) as file:
            return list(file.tensors)

    names = check_every_call(model.parent, lambda: None, read, maps=MAPS)
    assert {"stat", "open", "mmap"} <= set(names)


def test_a_model_is_quantized(model, folder):
    def prepare():
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "q.gguf").write_bytes(b"older")

    with GGUFFile.open(model) as file:
        names = check_every_call(
            folder, prepare, lambda: quantize(file, folder / "q.gguf", "Q8_0", threads=1, force=True)
        )
    assert {"open", "write", "fsync", "replace"} <= set(names)


def test_a_model_is_written_in_parts(model, folder):
    def prepare():
        shutil.rmtree(folder)
        folder.mkdir()

    def split():
        quantize(file, folder / "q.gguf", "COPY", threads=1, parts=lambda infos: [1, len(infos) - 1])

    with GGUFFile.open(model) as file:
        assert check_every_call(folder, prepare, split, kept=lambda name: "-of-00002.gguf" in name).count("link") == 2


@pytest.mark.parametrize(
    ("values", "in_place"),
    [({"llama.context_length": encode(128, "u32")}, True), ({"general.name": encode("x" * 100, "str")}, False)],
    ids=["place", "copy"],
)
def test_a_file_is_edited(model, folder, values, in_place):
    path = folder / "m.gguf"

    def prepare():  # without what could not be removed before
        shutil.rmtree(folder)
        folder.mkdir()
        shutil.copyfile(model, path)

    names = check_every_call(folder, prepare, lambda: edit(path, values=values), maps=MAPS)
    assert ("replace" in names) != in_place


def test_a_folder_is_read(tmp_path):
    folder = checkpoint_of(tmp_path / "folder", CASE)

    def read():
        with open_model(folder) as file:
            return dict(file.metadata)

    maps = ("pumice.convert.safetensors.mmap",)
    assert "mmap" in check_every_call(tmp_path, lambda: None, read, maps=maps, codes=(errno.EIO, errno.EMFILE))


@pytest.mark.parametrize("source", variants(["hub", "web"], ["hub"]))
def test_a_model_is_fetched(hub, tmp_path, source):
    data = content(2_000)
    hub.repositories["a/b"] = Repository({"M-Q4_K_M.gguf": data})
    hub.repositories["plain/web"] = Repository({"x.gguf": data})
    name = "a/b" if source == "hub" else f"{hub.content_url}/plain/x.gguf"
    caches = [tmp_path / name for name in ("hub", "cache")]

    def prepare():
        for folder in caches:
            shutil.rmtree(folder, ignore_errors=True)

    def get():
        assert fetch(name) == [locate(name).path]

    def is_unfinished(path):
        return path.endswith(".incomplete")

    names = check_every_call(tmp_path, prepare, get, kept=is_unfinished)
    assert {"open", "write", "fsync", "replace"} <= set(names)
    assert locate(name).path.read_bytes() == data


def test_a_kernel_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "folders", lambda: [tmp_path / "kernels"])
    entry = cache.CompiledKernel(["x"], b"code")

    def keep():
        cache.save("name", entry)
        assert cache.load("name") in (entry, None)

    names = check_every_call(tmp_path, lambda: shutil.rmtree(tmp_path / "kernels", ignore_errors=True), keep, errors=())
    assert {"mkdir", "write", "replace"} <= set(names)


def test_a_conversation_is_saved(folder):
    path = folder / "chat.json"
    conversation = Conversation.__new__(Conversation)
    conversation.messages = [{"role": "user", "content": "Hello"}]
    check_every_call(folder, lambda: path.write_text('{"messages": []}') and None, lambda: conversation.save(path))


def test_a_model_is_created_and_removed(home, folder, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))

    def prepare():
        shutil.rmtree(folder)
        folder.mkdir()
        create_model("other", {"model": "a.gguf"})

    def create():
        create_model("made", {"model": "a.gguf"})
        assert created_models() == ["made", "other"]
        assert remove_created("other")

    names = check_every_call(folder, prepare, create, codes=(errno.EIO, errno.ENOSPC))
    assert {"write", "replace", "unlink"} <= set(names)


def test_a_folder_is_converted(tmp_path, folder):
    source = checkpoint_of(tmp_path / "folder", CASE)

    def prepare():
        shutil.rmtree(folder)
        folder.mkdir()

    with open_model(source) as file:
        names = check_every_call(folder, prepare, lambda: write_model(file, folder / "m.gguf"))
    assert {"open", "write", "fsync"} <= set(names)


def test_a_cached_prompt_is_written_and_read(tmp_path):
    """An entry that cannot be written or read is a prompt that is computed again."""
    data = np.arange(50, dtype=np.uint8)
    entry = Entry(bytes(range(32)), 32, 32, len(data))
    folder = tmp_path / "cache"

    def prepare():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        (folder / "secret").write_bytes(bytes(range(SECRET_BYTES)))

    def write_and_read():
        tier = DiskTier.__new__(DiskTier)
        with patch.object(threading, "Thread"):  # what it does, this one does
            tier.__init__(folder, 2**40)
        tier.put(entry, data)
        tier._queue.put(None)
        tier._write_all()
        if tier.has(entry):
            found = tier.get(entry)
            assert found is None or np.array_equal(found, data)

    names = check_every_call(folder, prepare, write_and_read)
    assert {"write", "replace", "read", "lstat"} <= set(names)
