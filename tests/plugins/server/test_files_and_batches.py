"""OpenAI's files and batches, by the official client: answered in the background, and kept over a restart."""

import asyncio
import hashlib
import io
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

import pumice
from imported_late import Late
from pumice_server.application import make_application
from pumice_server.jobs import database
from pumice_server.jobs import store as limits
from pumice_server.jobs.form import read_form
from pumice_server.jobs.runner import WrongInput, read_input
from pumice_server.jobs.store import JobStore, StoredFile
from pumice_server.keys import APIKeys
from pumice_server.models.served_models import Models
from pumice_server.settings import Settings
from server_thread import listening
from waiting import PATIENCE, wait_until

openai = Late("openai")

CHAT = "/v1/chat/completions"
SOON = {"anchor": "created_at", "seconds": 9}
ENDED = ("completed", "failed", "expired", "cancelled")


def row(custom_id: str, url: str = CHAT, **body: object) -> dict[str, object]:
    asked = {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 3, **body}
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": asked}


def lines(*rows: object) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


@asynccontextmanager
async def working(application: Starlette) -> AsyncIterator[None]:
    application.state.jobs.start()
    yield
    await application.state.jobs.stop()


@contextmanager
def kept(model: pumice.Model, folder, **settings) -> "Iterator[tuple[openai.OpenAI, JobStore]]":
    application = make_application(Models.of(model, ["demo"], Settings(batches=folder, **settings)), working)
    with listening(application) as (url, _):
        yield openai.OpenAI(base_url=f"{url}/v1", api_key="a", max_retries=0), application.state.jobs.store


def upload(client: "openai.OpenAI", content: bytes, name: str = "in.jsonl") -> str:
    return client.files.create(file=(name, io.BytesIO(content)), purpose="batch").id


def begin(client: "openai.OpenAI", file_id: str, **more) -> "openai.types.Batch":
    return client.batches.create(**{"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h", **more})


def finished(client: "openai.OpenAI", id: str) -> "openai.types.Batch":
    wait_until(lambda: client.batches.retrieve(id).status in ENDED)
    return client.batches.retrieve(id)


def answers(client: "openai.OpenAI", file_id: str | None) -> dict[str, dict]:
    text = client.files.content(file_id).text if file_id else ""
    return {line["custom_id"]: line["response"] for line in map(json.loads, text.splitlines())}


def test_a_batch_is_answered(model, tmp_path):
    with kept(model, tmp_path) as (client, store):
        content = lines(row("a"), row("b", temperature="hot"), row("c", seed=5))
        file_id = upload(client, content)
        assert client.files.retrieve(file_id).bytes == len(content)
        assert client.files.content(file_id).read() == content
        made = begin(client, file_id, metadata={"run": "1"})
        assert made.status == "validating"
        batch = finished(client, made.id)
        assert (batch.status, batch.metadata, batch.errors) == ("completed", {"run": "1"}, None)
        assert batch.request_counts.model_dump() == {"total": 3, "completed": 2, "failed": 1}
        right, wrong = answers(client, batch.output_file_id), answers(client, batch.error_file_id)
        assert {id: each["status_code"] for id, each in (right | wrong).items()} == {"a": 200, "b": 400, "c": 200}
        assert right["a"]["body"]["usage"]["completion_tokens"] == 3
        assert right["a"]["request_id"] != right["c"]["request_id"] != ""
        assert [each.id for each in client.batches.list()] == [made.id]
        assert {each.id for each in client.files.list()} == {file_id, batch.output_file_id, batch.error_file_id}
        assert len(client.files.list(limit=1).data) == 1
        client.files.delete(file_id)
        with pytest.raises(openai.NotFoundError, match="there is no file"):
            client.files.retrieve(file_id)
        with pytest.raises(openai.ConflictError, match="completed already"):
            client.batches.cancel(made.id)
        assert store.done(made.id) == set()


def test_a_batch_goes_on_after_a_restart(model, tmp_path, monkeypatch):
    """Rows with results are not answered again. A second server cannot use the same folder."""
    first_done, released = threading.Event(), threading.Event()
    add = JobStore.add_result

    def add_one(self, batch, result, is_failed) -> None:
        if not first_done.is_set():
            add(self, batch, result, is_failed)
            first_done.set()

    with monkeypatch.context() as patched:
        patched.setattr(JobStore, "add_result", add_one)
        patched.setattr(JobStore, "finish", lambda *_, **__: released.wait(PATIENCE))
        patched.setattr("pumice_server.jobs.runner.N_IN_FLIGHT", 1)
        with kept(model, tmp_path) as (client, _):
            id = begin(client, upload(client, lines(*map(row, "abc")))).id
            wait_until(first_done.is_set)
            assert client.batches.retrieve(id).status == "in_progress"
            with pytest.raises(pumice.PumiceError, match="used by another server"):
                JobStore(tmp_path / "batches.db")
            released.set()
    store = JobStore(tmp_path / "batches.db")
    assert store.done(id) == {"a"}
    store.database.close()
    with kept(model, tmp_path) as (client, _):
        batch = finished(client, id)
        assert batch.request_counts.model_dump() == {"total": 3, "completed": 3, "failed": 0}
        assert set(answers(client, batch.output_file_id)) == {"a", "b", "c"}


def test_errors_of_files_and_batches(model, tmp_path):
    with kept(model, tmp_path, keys=["a", "b"]) as (client, _):
        file_id = upload(client, lines(row("a"), row("b", url="/v1/embeddings")))
        batch = finished(client, begin(client, file_id).id)
        assert batch.status == "failed"
        (error,) = batch.errors.data
        message = f"line 2: url must be the batch's endpoint, {CHAT}, not /v1/embeddings"
        assert (error.line, error.message) == (2, message)
        other = client.with_options(api_key="b")
        assert list(other.files.list()) == list(other.batches.list()) == []
        for call in (
            lambda: other.files.content(file_id),
            lambda: other.files.delete(file_id),
            lambda: other.batches.retrieve(batch.id),
            lambda: begin(other, file_id),
        ):
            with pytest.raises(openai.NotFoundError):
                call()
        for wrong in (
            lambda: begin(client, file_id, metadata={"k" * 65: "a"}),
            lambda: client.get("/batches?after=b", cast_to=object),
            lambda: client.files.create(file=b"x", purpose="assistants"),
            lambda: client.files.create(file=b"", purpose="batch"),
            lambda: client.files.create(file=b"x", purpose="batch", expires_after=SOON),
            lambda: begin(client, file_id, endpoint="/v1/images"),
            lambda: client.post("/files", body={}, cast_to=object),
            lambda: client.get("/files?limit=0", cast_to=object),
        ):
            with pytest.raises(openai.BadRequestError):
                wrong()


def test_a_batch_is_cancelled(model, tmp_path, monkeypatch):
    monkeypatch.setattr("pumice_server.jobs.runner.N_IN_FLIGHT", 1)
    with kept(model, tmp_path) as (client, store):
        long = lines(row("a"), *(row(str(i), max_tokens=1500, ignore_eos=True) for i in range(50)))
        file_id = upload(client, long)
        id, waits = (begin(client, file_id).id for _ in range(2))
        wait_until(lambda: store.done(id))
        assert client.batches.cancel(waits).status == "cancelled"
        with pytest.raises(openai.ConflictError, match="cancel it first"):
            client.files.delete(file_id)
        client.batches.cancel(id)
        batch = finished(client, id)
        assert (batch.status, batch.request_counts.total) == ("cancelled", 51)
        assert "a" in answers(client, batch.output_file_id)
        failures = client.files.content(batch.error_file_id or "").text.splitlines()
        assert json.loads(failures[-1])["error"]["code"] == "batch_cancelled"
        assert len(failures) + len(answers(client, batch.output_file_id)) == 51


def test_rows_count_for_the_rates_of_their_key(model, tmp_path, monkeypatch):
    """Rows wait while the bucket is empty, and end with the key."""
    waits = threading.Event()
    pause = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds:
            waits.set()
        await pause(min(seconds, 0.01))

    monkeypatch.setattr("pumice_server.batch.row_client.asyncio", SimpleNamespace(sleep=sleep))
    file = tmp_path / "keys"
    file.write_text("a\nb\n")
    keys = APIKeys(file=file)
    with kept(model, tmp_path, keys=keys, max_requests=3) as (client, store):
        content = lines(*(row(str(i)) for i in range(9)))
        made = begin(client, upload(client, content))
        wait_until(waits.is_set)  # two requests were the client's own
        file.write_text("b\n")
        keys.reload()
        owner = hashlib.sha256(b"a").hexdigest()
        wait_until(lambda: store.batch(owner, made.id)["status"] == "failed")
        batch = store.batch(owner, made.id)
        assert batch["errors"]["data"][0]["message"] == "the API key of this batch is no longer valid"
        assert batch["request_counts"]["completed"] < 9


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"{", 1, "line 1 is not valid JSON"),
        (b"[" * 70 + b"]" * 70, 1, "line 1 has more than 64 levels of brackets"),
        (lines(row("a")) + b"\n\n" + lines(row("a")), 3, "occurs twice"),
        (lines(row("a" * 513)), 1, "has more than 512 characters"),
        (lines({"custom_id": "a"}), 1, "url must be one of"),
        (b"\n \n", None, "the file has no requests"),
    ],
)
def test_an_input_is_checked(content, line, message):
    with pytest.raises(WrongInput, match=message) as error:
        read_input(content, CHAT)
    assert error.value.line == line


def test_a_form():
    head = "multipart/form-data; boundary=x"
    body = (
        b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x\r\nContent-Disposition: form-data; '
        b'name="file"; filename="a.jsonl"\r\nContent-Type: text/plain\r\n\r\n\r\n--y\r\n\r\n--x--\r\n'
    )
    form = read_form(head, body)
    assert form["purpose"] == (b"batch", None)
    assert form["file"] == (b"\r\n--y\r\n", "a.jsonl")
    assert read_form('multipart/form-data; boundary="x"', body) == form
    many = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' * 17 + b"--x--"
    assert read_form(head, body.replace(b"a.jsonl", "\u00e4.jsonl".encode()))["file"].filename == "\u00e4.jsonl"
    # The last two name codecs of Python that refuse.
    names = b"*=a\0b''x", b'="\xff"', b"*=undefined''x", b"*=idna''" + b"%80" * 90
    nameless = b"--x\r\nContent-Disposition: form-data\r\n\r\nabc\r\n--x--"
    for kind, wrong in (
        ("application/json", body),
        ("multipart/form-data", body),
        (f"{head}; a={'x' * 256}", body),
        (head, body.replace(b'"purpose"', b'"purpose"' + b"; a=1" * 40)),
        (f"multipart/form-data; boundary={'x' * 71}", body),
        (head, body[:-6]),
        (head, many),
        (head, nameless),
        (head, b"--x\r\nabc\r\n--x--"),
        *((head, body.replace(b'="a.jsonl"', name)) for name in names),
        (head, b"--x\r\nA: " + b"a" * 5000 + b"\r\n\r\nabc\r\n--x--"),
    ):
        with pytest.raises(HTTPException):
            read_form(kind, wrong)


def stored(id: str, owner: str, size: int = 1, expires: int = 2**40) -> tuple[StoredFile, bytes]:
    return StoredFile(id, owner, "a", "batch", 0, expires, size), b"x" * size


def waiting_batch(id: str) -> dict:
    told = {"created_at": limits.now(), "request_counts": {"total": 2, "completed": 0, "failed": 0}}
    return {"id": id, "input_file_id": "f", "status": "validating", **told}


def test_stored_files_are_bounded(tmp_path, monkeypatch):
    store = JobStore(tmp_path / "batches.db")
    monkeypatch.setattr(database, "MAX_BYTES", 100)
    store.add_file(*stored("f", "", 60))
    with pytest.raises(HTTPException, match="more than 100 bytes"):
        store.add_file(*stored("g", "", 41))
    store.add_file(*stored("h", "", 39, expires=1))
    assert [file.bytes for file in store.files("")] == [60]
    store.add_file(*stored("i", "", 40))  # in place of the file that has expired
    store.add_batch("", waiting_batch("b"))
    with pytest.raises(HTTPException, match="more than 100 bytes"):
        store.add_result("b", {"custom_id": "a"}, False)
    monkeypatch.setattr(limits, "MAX_FILES", 2)
    with pytest.raises(HTTPException, match="2 files are kept already"):
        store.add_file(*stored("j", "", 0))
    monkeypatch.setattr(limits, "MAX_WAITING", 1)
    with pytest.raises(HTTPException, match="1 batches wait already"):
        store.add_batch("", waiting_batch("c"))
    store.finish("b", {}, status="completed")
    monkeypatch.setattr(limits, "MAX_BATCHES", 1)
    store.add_batch("", waiting_batch("c"))
    assert [each["id"] for each in store.batches("", None, 9)] == ["c"]  # the oldest that was finished is gone
    with pytest.raises(HTTPException, match="1 batches are kept already"):
        store.add_batch("", waiting_batch("d"))
    store.database.close()


def test_owners_share_the_room(tmp_path, monkeypatch):
    store = JobStore(tmp_path / "batches.db")
    monkeypatch.setattr(database, "MAX_BYTES", 100)
    store.add_file(*stored("f", "a", 50))
    with pytest.raises(HTTPException, match="more than 50 bytes"):
        store.add_file(*stored("g", "a", 1))
    store.add_file(*stored("g", "b", 25))
    with pytest.raises(HTTPException, match="more than 25 bytes"):
        store.add_file(*stored("h", "b", 1))
    store.delete_file("a", "f")
    store.add_file(*stored("f", "a", 1))
    assert [limits.share(100, "a", others) for others in (0, 85, 95)] == [50, 10, 5]
    with pytest.raises(HTTPException, match="there is no file"):
        store.add_batch("b", waiting_batch("b-1"))
    for owner, file in (("a", "f"), ("b", "g")):
        for number in (1, 2):
            store.add_batch(owner, {**waiting_batch(f"{owner}-{number}"), "input_file_id": file})
    turns = [batch["id"] for owner in ("", "a", "b") if (batch := store.next_batch(owner))]
    assert turns == ["a-1", "b-1", "a-1"]
    assert [each["id"] for each in store.batches("a", "a-2", 9)] == ["a-1"]
    assert [each["id"] for each in store.batches("a", None, 1)] == ["a-2"]
    store.database.close()


def test_a_file_is_kept_while_a_batch_needs_it(tmp_path, monkeypatch):
    """A batch that is finished takes no further results, and keeps no rows."""
    store = JobStore(tmp_path / "batches.db")
    store.add_file(*stored("f", "", expires=limits.now() + 50))
    store.add_batch("", waiting_batch("b"))
    store.add_result("b", {"custom_id": "a"}, False)
    day_after = limits.now() + 86_400
    monkeypatch.setattr(limits, "now", lambda: day_after)
    store.add_file(*stored("g", ""))
    assert store.input("f") == b"x"
    output, errors = (stored(id, "")[0] for id in ("o", "e"))
    left = [{"custom_id": id} for id in "ab"]
    store.finish("b", {"output_file_id": output, "error_file_id": errors}, left, status="cancelled")
    assert (store.input("o"), store.input("e")) == (b'{"custom_id":"a"}\n', b'{"custom_id":"b"}\n')
    store.add_result("b", {"custom_id": "late"}, False)
    assert store.done("b") == set()
    assert store.change("b", status="in_progress")["status"] == "cancelled"
    store.add_file(*stored("h", ""))
    assert store.input("f") == b""
    store.database.close()
