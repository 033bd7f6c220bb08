"""Slots: their tokens are saved, restored by being read again, and forgotten; names lead to no other files."""

import os

import pytest

import pumice
from nightly import crossed
from server_thread import running

PROMPT = "Tom and his sister went to the lake. " * 8


@pytest.fixture(scope="module")
def saving(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("slots")
    with running(model, slot_folder=folder) as server:
        yield server, folder


def act(server, action: str, slot: str = "1", **body):
    return server.client.post(f"/slots/{slot}?action={action}", json=body)


def test_a_slot_is_saved_and_restored(saving):
    server, folder = saving
    body = {"prompt": PROMPT, "n_predict": 3, "id_slot": 1, "temperature": 0}
    told = server.client.post("/completion", json=body).json()
    assert told["id_slot"] == 1
    saved = act(server, "save", filename="talk.bin").json()
    assert saved["n_saved"] == told["tokens_evaluated"] + 2
    assert saved["n_written"] == (folder / "talk.bin").stat().st_size
    assert act(server, "erase").json() == {"id_slot": 1, "n_erased": saved["n_saved"]}
    assert server.client.post("/slots/1?action=erase").json()["n_erased"] == 0  # without a body
    restored = act(server, "restore", filename="talk.bin").json()
    assert (restored["n_restored"], restored["n_read"]) == (saved["n_saved"], saved["n_written"])
    again = server.client.post("/completion", json=body).json()
    assert again["timings"]["cache_n"] > 0.8 * told["tokens_evaluated"]


def test_a_saved_slot_is_loaded_after_a_restart(tmp_path):
    body = {"prompt": PROMPT, "n_predict": 3, "id_slot": 1, "temperature": 0}
    folder = tmp_path / ".cache"

    def restored(saves: bool = False):
        options = {"n_ctx": 256, "cache_saved": str(folder), "config": {"chat_template": "plain"}}
        with pumice.load(**options) as model, running(model, slot_folder=tmp_path) as server:
            if saves:
                told = server.client.post("/completion", json=body).json()
                return act(server, "save", filename="talk.bin").json(), told["content"]
            found = act(server, "restore", filename="talk.bin").json()
            return found, server.client.post("/completion", json=body).json()["content"]

    saved, text = restored(saves=True)
    n_cached = (saved["n_saved"] - 1) // 32 * 32
    assert saved["n_cached"] == n_cached > 0
    for n_found in (n_cached, 0):
        found, again = restored()
        assert (found["n_restored"], found["n_cached"], again) == (saved["n_saved"], n_found, text)
        for file in folder.glob("*/*-*"):
            file.write_bytes(file.read_bytes()[:-1] + b"?")


@pytest.mark.parametrize("name", ["", "../x", "/etc/passwd", ".hidden", "a/b", "a" * 65, "a\x00", "ü"])
def test_names_that_lead_elsewhere(saving, name):
    for action in ("save", "restore"):
        response = act(saving[0], action, filename=name)
        assert response.status_code == 400
        assert "filename must be" in response.text


def test_slots_that_cannot_be_restored(saving):
    server, folder = saving
    assert act(server, "restore", filename="absent").status_code == 400
    (folder / "bad").write_bytes(b"{")
    assert "is not a slot saved" in act(server, "restore", filename="bad").text
    (folder / "other").write_bytes(b'{"model": "x", "tokens": [1]}')
    assert "another model" in act(server, "restore", filename="other").text
    (folder / "other").write_bytes(b'{"model":"x","tokens":[' + b"}" * (1 << 20))  # whose tokens nobody reads
    assert "another model" in act(server, "restore", filename="other").text
    os.symlink("/etc/passwd", folder / "link")
    assert act(server, "restore", filename="link").status_code == 400


def test_wrong_slots_and_actions(saving, server):
    for action, slot in (("dance", "1"), ("erase", "99"), ("erase", "-1")):
        assert act(saving[0], action, slot).status_code == 400
    assert act(server, "save", filename="x").status_code == 501


ENDPOINTS = {
    "/completion": {"prompt": PROMPT, "n_predict": 3},
    "/v1/completions": {"prompt": PROMPT, "max_tokens": 3},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 3},
    "/v1/responses": {"input": PROMPT, "max_output_tokens": 3},
    "/v1/messages": {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 3},
    "/api/chat": {"messages": [{"role": "user", "content": PROMPT}], "options": {"num_predict": 3}},
    "/api/generate": {"prompt": PROMPT, "options": {"num_predict": 3}},
    "/infill": {"input_prefix": PROMPT, "input_suffix": "", "n_predict": 3},
}


@pytest.fixture(scope="module")
def one_slot(tmp_path_factory):
    options = {"n_parallel": 1, "config": {"chat_template": "plain"}}
    with pumice.load(**options) as model, running(model, slot_folder=tmp_path_factory.mktemp("slot")) as server:
        yield server


@pytest.mark.parametrize(("endpoint", "stream"), crossed(list(ENDPOINTS), [False, True]))
def test_every_endpoint_fills_a_slot(saving, one_slot, endpoint, stream):
    """The only one, or the one that the request names."""
    for server, slot, given in ((one_slot, "0", {}), (saving[0], "2", {"id_slot": 2})):
        act(server, "erase", slot)
        body = {"model": "demo", "stream": stream, "temperature": 0} | ENDPOINTS[endpoint] | given
        response = server.client.post(endpoint, json=body)
        if endpoint == "/infill" and response.status_code == 501:
            pytest.skip("the model has no tokens for infilling")
        assert response.status_code == 200, response.text
        saved = act(server, "save", slot, filename="any.bin").json()
        assert saved["n_saved"] > len(server.model.tokenizer.tokenize(PROMPT)), (endpoint, saved)
        assert act(server, "restore", slot, filename="any.bin").json()["n_restored"] == saved["n_saved"]


@pytest.mark.parametrize("endpoint", [name for name in ENDPOINTS if name != "/infill"])
def test_requests_of_another_salt_share_no_cache(one_slot, endpoint):
    def cached(salt: str | None) -> int:
        before = one_slot.client.get("/metrics").text
        body = {"model": "demo", "stream": False, "cache_salt": salt, "temperature": 0} | ENDPOINTS[endpoint]
        assert one_slot.client.post(endpoint, json=body).status_code == 200
        return hits(one_slot.client.get("/metrics").text) - hits(before)

    first = f"salt of {endpoint}"
    assert cached(first) == 0
    assert cached(first) > 50
    assert cached(first + "!") == 0


def hits(metrics: str) -> float:
    """Return the number of tokens of prompts that were read from the cache."""
    lines = [line for line in metrics.splitlines() if line.startswith("pumice_prompt_cached_tokens_total")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def test_a_slot_does_not_replace_a_folder(saving):
    server, folder = saving
    (folder / "talks").mkdir()
    response = act(server, "save", filename="talks")
    message = "talks is a folder; choose another filename for the slot"
    assert (response.status_code, response.json()["error"]["message"]) == (400, message)
    assert not [path for path in folder.iterdir() if path.name.startswith(".talks")]


def full(*arguments):
    raise OSError(28, "No space left on device")


def test_a_slot_that_cannot_be_saved_leaves_what_was(saving, monkeypatch):
    server, folder = saving
    assert act(server, "save", filename="kept").status_code == 200
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and not path.is_symlink()}
    monkeypatch.setattr("pumice_server.protocols.llama_server.slots.os.replace", full)
    response = act(server, "save", filename="kept")
    message = "kept cannot be kept: No space left on device"
    assert (response.status_code, response.json()["error"]["message"]) == (507, message)
    after = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and not path.is_symlink()}
    assert after == before


def test_a_slot_whose_cache_finds_the_disk_full_is_an_error(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("pumice.cache_tiers.disk.write_file", full)
    options = {"n_ctx": 256, "cache_saved": str(tmp_path / ".cache"), "config": {"chat_template": "plain"}}
    with pumice.load(**options) as model, running(model, slot_folder=tmp_path) as server:
        server.client.post("/completion", json={"prompt": PROMPT, "n_predict": 3, "id_slot": 1})
        response = act(server, "save", filename="talk.bin")
    message = "the cache of talk.bin cannot be kept: less than 1 GiB of its disk is free, or it cannot be written"
    assert (response.status_code, response.json()["error"]["message"]) == (507, message)
    assert not (tmp_path / "talk.bin").exists()
    assert [record for record in caplog.records if message in record.message and record.levelname == "ERROR"]
    assert f"{tmp_path / '.cache'} cannot be written: No space left on device" in caplog.text
