"""Ollama's blobs: files that clients upload, in a folder with a bound, and models created of them by its own client."""

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import ollama
import pytest
from starlette.exceptions import HTTPException

import pumice
from adapters import write_adapter
from gguf_files import tiny_llama, write_gguf
from pumice.errors import EngineError
from pumice.gguf import GGUFFile
from pumice.plugin.unstable import ModelSpec
from pumice.process import reader
from pumice_server import limits
from pumice_server.models import uploads
from pumice_server.models.uploads import Uploads
from pumice_server.protocols.ollama import blobs
from server_thread import running, serving
from tiny_models import TinyModel
from waiting import PATIENCE

OPTIONS = {"backend": "numpy", "kv_type": "f32", "config": {"chat_template": "plain"}}
GREEDY = {"temperature": 0, "num_predict": 5}
CHAT = [{"role": "user", "content": "a"}]


@pytest.fixture
def path(tmp_path) -> Path:
    return tiny_llama(tmp_path / "tiny.gguf")


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "uploads"


def with_wrong_types(path: Path) -> Path:
    """Copy a model, whose tokens have too few types."""
    with GGUFFile.open(path) as file:
        tensors = {name: tensor.dequantize() for name, tensor in file.tensors.items()}
        changed = {**file.metadata, "tokenizer.ggml.token_type": [1, 1]}
        return write_gguf(path.with_name("damaged.gguf"), changed, tensors)


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def names_in(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_ollamas_client_creates_a_model_of_a_local_file(path, folder):
    spec = ModelSpec(["first"], str(path), OPTIONS)
    with serving(spec, uploads=folder, upload_bytes=1 << 20) as server:
        client = ollama.Client(host=server.url)
        digest = client.create_blob(path)
        assert digest == digest_of(path.read_bytes())
        assert server.client.head(f"/api/blobs/{digest}").status_code == 200
        lines = list(client.create("own", files={"tiny.gguf": digest}, system="Be brief.", stream=True))
        assert lines[-1].status == "success"
        with pumice.load(path, **OPTIONS | {"config": {"chat_template": "chatml"}}) as model:
            messages = [{"role": "system", "content": "Be brief."}, *CHAT]
            expected = model.chat(messages, temperature=0, max_tokens=5).message.content
        for _ in range(2):  # the second time in place of the first
            assert client.chat("own", CHAT, options=GREEDY).message.content == expected
            client.create("own", files={"Tïny (1).gguf": digest}, system="Be brief.")
        assert [model.model for model in client.list().models] == ["first", "own"]
        assert client.show("own").details.family == "llama"
        client.create("brief", from_="own", system="x")
        client.create("own-too", files={"tiny.gguf": digest})
        client.delete("own")
        assert names_in(folder / "blobs") == {digest.replace(":", "-")}, "another model has the file"
        assert 'model="own"' not in server.client.get("/metrics").text, "labels go with their model"
        client.delete("own-too")
        assert names_in(folder / "blobs") == set()
        assert [model.model for model in client.list().models] == ["first"]
    assert names_in(folder / "models") == set()


def write_adapter_of(path, adapter):
    with GGUFFile.open(path) as file:
        tiny = TinyModel(file.architecture, {}, {name: tensor.shape for name, tensor in file.tensors.items()})
    return write_adapter(adapter, tiny, ["blk.0.attn_q.weight", "blk.0.attn_v.weight"], seed=1)


def test_files_outlive_the_server_and_models_do_not(path, folder):
    spec = ModelSpec(["first"], str(path), OPTIONS)
    for _ in range(2):
        with serving(spec, uploads=folder, upload_bytes=1 << 20) as server:
            client = ollama.Client(host=server.url)
            digest = client.create_blob(path)
            client.create("own", files={"tiny.gguf": digest})
        assert names_in(folder / "blobs") == {digest.replace(":", "-")}


def test_nothing_is_uploaded_unless_that_is_allowed(server):
    digest = digest_of(b"a")
    assert server.client.head(f"/api/blobs/{digest}").status_code == 404  # so that Ollama's client says why
    refused = server.client.post(f"/api/blobs/{digest}", content=b"a")
    assert (refused.status_code, "--allow-uploads" in refused.json()["error"]) == (403, True)
    body = {"model": "own", "files": {"a.gguf": digest}, "stream": False}
    assert server.client.post("/api/create", json=body).status_code == 403
    body = {"model": "own", "from": "demo", "adapters": {"a.gguf": digest}, "stream": False}
    assert server.client.post("/api/create", json=body).status_code == 403


def test_uploads_are_checked_and_bounded(model, folder, monkeypatch):
    monkeypatch.setattr(limits, "MAX_BODY", 1 << 10)
    with running(model, uploads=folder, upload_bytes=100_000, max_body=1 << 10) as server:

        def post(content: bytes, digest: str = "") -> httpx2.Response:
            return server.client.post(f"/api/blobs/{digest or digest_of(content)}", content=content)

        parts = [bytes([number]) * 40_000 for number in range(4)]
        assert [post(part).status_code for part in parts[:2]] == [201, 201]
        assert post(parts[0]).status_code == 200, "it is here already"
        wrong = post(parts[2], digest_of(parts[3]))
        assert (wrong.status_code, "upload it again" in wrong.json()["error"]) == (400, True)
        for digest in ("sha256:0", "sha256-" + "0" * 64, "sha256:" + "A" * 64):
            assert post(b"a", digest).status_code == 400
        assert post(b"a" * 100_001).status_code == 413
        streamed = server.client.post(f"/api/blobs/{digest_of(b'a')}", content=iter([b"a" * 60_000] * 2))
        assert streamed.status_code in (400, 413, 507)
        assert post(parts[2]).status_code == 201
        kept = names_in(folder / "blobs")
        assert len(kept) <= 2, "the oldest made room"
        assert digest_of(parts[2]).replace(":", "-") in kept
        assert server.client.post("/tokenize", content=b"a" * 2000).status_code == 413, "other bodies have their bound"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.gguf": "tiny"}, "^a.gguf: neither a LoRA adapter nor a control vector "),  # as an adapter
        ({"a.gguf": "noise"}, "^a.gguf: neither a LoRA adapter nor a control vector "),
        ({"m.gguf": "lora"}, "^m.gguf: not a model, but of the type 'adapter' "),
        ({}, "from must name"),
        ({"../x.gguf": "tiny"}, "must be the name of a file"),
        ({".gguf": "tiny"}, "must be the name of a file"),
        ({"a\n.gguf": "tiny"}, "must be the name of a file"),
        ({"x.safetensors": "tiny"}, "must have one model"),
        ({"x.gguf": "tiny", "y.gguf": "tiny"}, "must have one model"),
        ({"x.gguf": "sha256:" + "0" * 64}, "upload it to"),
        ({"x.gguf": "../../etc/passwd"}, "64 hexadecimal digits"),
        ({"x.gguf": "noise"}, "not a GGUF model"),
        ({"x.gguf": "damaged"}, "x.gguf: its vocabulary is damaged: tokenizer.ggml.token_type has 2 values"),
    ],
)  # fmt: skip
def test_wrong_files_of_a_model(path, folder, files, message):
    spec = ModelSpec(["first"], str(path), OPTIONS)
    with serving(spec, uploads=folder, upload_bytes=1 << 20) as server:
        client = ollama.Client(host=server.url)
        (noise := path.with_name("noise.gguf")).write_bytes(b"noise" * 100)
        made = with_wrong_types(path), write_adapter_of(path, path.with_name("lora.gguf"))
        uploaded = {file.stem: client.create_blob(file) for file in (path, noise, *made)}
        given = {name: uploaded.get(file, file) for name, file in files.items()}
        with pytest.raises(ollama.ResponseError, match=message) as error:
            client.create("own", **({"from_": "first", "adapters": given} if "LoRA" in message else {"files": given}))
        assert error.value.status_code == 400
        assert list((folder / "models").glob("*/*")) == []
        for _ in range(2):  # a refusal removes no upload
            with pytest.raises(ollama.ResponseError, match="server's own"):
                client.create("first", files={"x.gguf": uploaded["tiny"]})


async def parts_of(content: bytes, size: int) -> AsyncIterator[bytes]:
    for begin in range(0, len(content), size):
        yield content[begin : begin + size]


def test_uploaded_models_are_bounded(path, folder, monkeypatch):
    """Also those that are made at the same time; a model in place of another one needs no room."""
    monkeypatch.setattr("pumice_server.models.served_models.MAX_MODELS", 2)
    both, find_problem = threading.Barrier(2), blobs.vocabulary_problem

    def problem_of_both(path: str) -> str:
        both.wait(PATIENCE)
        return find_problem(path)

    with serving(ModelSpec(["first"], str(path), OPTIONS), uploads=folder, upload_bytes=1 << 20) as server:
        files = {"tiny.gguf": ollama.Client(host=server.url).create_blob(path)}

        def create(name: str) -> int:
            return server.client.post("/api/create", json={"model": name, "files": files, "stream": False}).status_code

        with monkeypatch.context() as together, ThreadPoolExecutor(2) as pool:
            together.setattr(blobs, "vocabulary_problem", problem_of_both)
            assert sorted(pool.map(create, ["own", "other"])) == [200, 503]
        (made,) = [name for name in server.models.names if name != "first"]
        assert create(made) == 200
        assert create("third") == 503


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        ("read_summaries", r"^x\.gguf: the header cannot be read now"),
        ("read_vocabulary_problem", r"^x\.gguf: the vocabulary cannot be checked now"),
    ],
)
def test_a_reader_that_fails_finds_no_damage_and_shows_no_path(path, folder, monkeypatch, fails, message):
    def fail(files):
        raise EngineError(f"the reader of headers ended before {files}")

    monkeypatch.setattr(reader, fails, fail)
    spec = ModelSpec(["first"], str(path), OPTIONS)
    with serving(spec, uploads=folder, upload_bytes=1 << 20) as server:
        client = ollama.Client(host=server.url)
        with pytest.raises(ollama.ResponseError, match=message) as error:
            client.create("own", files={"x.gguf": client.create_blob(path)})
        assert (error.value.status_code, str(folder) in str(error.value)) == (503, False)
        assert list((folder / "models").glob("*/*")) == []


def test_room_is_made_of_files_that_no_model_has(tmp_path):
    kept = Uploads(tmp_path, 100)
    other = Uploads(tmp_path, 100)
    for letter in "abc":
        content = letter.encode() * 30
        (tmp_path / "blobs" / digest_of(content).replace(":", "-")).write_bytes(content)
    linked = digest_of(b"a" * 30)
    other.link({"a.gguf": linked})
    kept._make_room(40)
    assert kept.find(linked), "a model of another server has it"
    assert len(names_in(tmp_path / "blobs")) == 2
    with pytest.raises(uploads.HTTPException, match="--allow-uploads"):
        kept._make_room(80)
    other._lock.release()  # as the system does when a process ends
    Uploads(tmp_path, 100).close()
    kept._make_room(100)
    assert names_in(tmp_path / "blobs") == set()


def test_the_number_of_files_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("pumice_server.models.uploads._MAX_FILES", 3)
    kept = Uploads(tmp_path, 100)
    digests = [digest_of(letter.encode()) for letter in "abc"]
    for i, digest in enumerate(digests):
        path = tmp_path / "blobs" / digest.replace(":", "-")
        path.write_bytes(b"abc"[i : i + 1])
        os.utime(path, (i, i))
    kept.link({"a.gguf": digests[0]})
    kept._make_room(1)
    assert [bool(kept.find(digest)) for digest in digests] == [True, False, True], "the oldest without a model is gone"
    (tmp_path / "blobs" / digests[1].replace(":", "-")).write_bytes(b"b")
    kept.link({"b.gguf": digests[1], "c.gguf": digests[2]})
    with pytest.raises(HTTPException, match="delete models"):
        kept._make_room(1)
    kept.close()


def test_a_cancelled_upload_leaves_no_file(tmp_path, monkeypatch):
    """Also if a thread is about to write when the client goes away."""
    kept = Uploads(tmp_path, 1 << 20)
    begun, goes_on, ended = threading.Event(), threading.Event(), threading.Event()
    append = kept._append

    def slowly(*arguments):
        begun.set()
        goes_on.wait(PATIENCE)
        try:
            append(*arguments)
        finally:
            ended.set()

    monkeypatch.setattr(kept, "_append", slowly)

    async def cancel() -> None:
        upload = asyncio.create_task(kept.receive(digest_of(b"abc"), parts_of(b"abc", 3)))
        await asyncio.to_thread(begun.wait, PATIENCE)
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
        goes_on.set()
        await asyncio.to_thread(ended.wait, PATIENCE)

    asyncio.run(cancel())
    assert names_in(tmp_path / "blobs") == set()
    kept.close()
