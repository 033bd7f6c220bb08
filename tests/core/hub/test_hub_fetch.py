"""Models fetched from a hub on loopback, with everything that goes wrong on the way."""

import errno
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from huggingface_hub import try_to_load_from_cache

import hub_server
from hub_server import Repository, content
from pumice import HubError
from pumice.hub import fetch, locate
from pumice.hub.projectors import find_projector
from pumice.hub.repository import cache_directory
from waiting import wait_until

DATA = content(300_000)


@pytest.fixture
def repository(hub):
    """``a/b``: two quantizations, one of them in two parts, and a file that is no model."""
    hub.repositories["a/b"] = Repository(
        {
            "README.md": b"# hello",
            "M-Q4_K_M.gguf": DATA,
            "M-Q8_0-00001-of-00002.gguf": content(1000, 1),
            "M-Q8_0-00002-of-00002.gguf": content(2000, 2),
        }
    )
    return hub.repositories["a/b"]


def test_a_model_is_fetched_once(hub, repository):
    path = locate("hf.co/a/b").path
    assert path.read_bytes() == DATA
    assert path.name == "M-Q4_K_M.gguf"
    asked = len(hub.requests)
    assert locate("hf.co/a/b").path == locate("a/b:q4_k_m").path == path
    assert len(hub.requests) == asked, "what is here is not asked for"
    assert fetch("a/b") == [path]
    assert len(hub.sent) == 1, "what did not change is not sent again"


def test_other_programs_find_it(hub, repository):
    path = locate("a/b").path
    assert Path(try_to_load_from_cache("a/b", "M-Q4_K_M.gguf", cache_dir=cache_directory())) == path
    assert path.resolve().name == hashlib.sha256(DATA).hexdigest()


def test_all_parts_are_fetched(hub, repository):
    seen = []
    paths = fetch("a/b:Q8_0", progress=lambda *report: seen.append(report))
    assert [path.name for path in paths] == ["M-Q8_0-00001-of-00002.gguf", "M-Q8_0-00002-of-00002.gguf"]
    assert locate("a/b:Q8_0").path == paths[0]
    assert seen[-1] == ("a/b/M-Q8_0-00002-of-00002.gguf", 3000, 3000)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_the_projector_of_a_model_that_sees_is_fetched_beside_it(hub, repository):
    repository.files |= {"mmproj-F16.gguf": content(50, 4), "mmproj-F32.gguf": content(60, 5)}
    repository.files["other/mmproj-F16.gguf"] = content(70, 6)
    assert [path.name for path in fetch("a/b")] == ["M-Q4_K_M.gguf"]
    projector = find_projector(locate("a/b").path)
    assert (projector.name, projector.read_bytes()) == ("mmproj-F16.gguf", content(50, 4))
    assert len(hub.sent) == 2


def test_a_new_version_is_fetched_when_asked_for(hub, repository):
    old = locate("a/b").path
    repository.files["M-Q4_K_M.gguf"] = content(100, 3)
    repository.commit = "d" * 40
    assert locate("a/b").path == old
    [new] = fetch("a/b")
    assert new.read_bytes() == content(100, 3)
    assert locate("a/b").path == new
    assert old.read_bytes() == DATA


def test_a_connection_that_is_cut_goes_on_where_it_ended(hub, repository):
    hub.faults.cut_after = [100_000, 50_000]
    assert locate("a/b").path.read_bytes() == DATA
    assert [n_bytes for _, n_bytes in hub.sent] == [100_000, 50_000, 150_000]


def test_the_next_process_goes_on_where_one_ended(hub, repository):
    hub.faults.cut_after = [100_000] + [0] * 20
    with pytest.raises(HubError, match="try again, the received part is kept"):
        locate("a/b")
    assert not list(cache_directory().glob("models--a--b/snapshots/*/*"))
    hub.faults.cut_after = []
    hub.sent.clear()
    assert locate("a/b").path.read_bytes() == DATA
    assert [n_bytes for _, n_bytes in hub.sent] == [200_000]


@pytest.mark.parametrize("sent", [DATA[:1000] + b"x" + DATA[1001:], b"<html>" + DATA[6:]], ids=["bit", "page"])
def test_a_damaged_download_is_never_a_model(hub, repository, sent):
    repository.files["M-Q4_K_M.gguf"] = sent
    repository.checksum["M-Q4_K_M.gguf"] = hashlib.sha256(DATA).hexdigest()
    with pytest.raises(HubError, match=r"SHA-256|not a GGUF file"):
        locate("a/b")
    assert [path for path in cache_directory().rglob("*") if path.is_file() and path.suffix != ".lock"] == []
    repository.files["M-Q4_K_M.gguf"] = DATA
    assert locate("a/b").path.read_bytes() == DATA


EVIL = "../../../evil"


def test_a_checksum_or_a_commit_is_no_path(hub, repository):
    repository.checksum["M-Q4_K_M.gguf"] = EVIL
    with pytest.raises(HubError, match="invalid checksum"):
        locate("a/b")
    repository.checksum.clear()
    repository.commit = EVIL
    with pytest.raises(HubError, match="returned an invalid commit"):
        locate("a/b")
    assert not list(cache_directory().parent.rglob("evil*"))


@pytest.mark.parametrize("small", [False, True])
def test_a_tag_is_no_path(hub, repository, small):
    repository.etag, repository.small = EVIL, small
    path = locate("a/b").path
    assert path.read_bytes() == DATA
    assert path.resolve().parent == cache_directory() / "models--a--b" / "blobs"
    assert not list(cache_directory().parent.rglob("evil*"))


@pytest.mark.parametrize("name", ["../x.gguf", "/x.gguf", "a/../../x.gguf", "a\\x.gguf", "x\n.gguf", "C:x.gguf"])
def test_a_name_that_leads_out_of_the_cache_is_left_out(hub, repository, name):
    repository.files = {name: DATA}
    for asked in ("a/b", f"hf.co/a/b/{name.strip('/')}"):
        with pytest.raises(HubError):
            locate(asked)
    assert hub.sent == []
    assert not list(cache_directory().parent.rglob("*.gguf"))


def test_a_cache_that_cannot_be_written_serves_what_is_there(hub, repository, monkeypatch):
    path = locate("a/b").path

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "read-only")

    for name in ("mkdir", "symlink", "replace", "link"):
        monkeypatch.setattr(f"os.{name}", refuse)
    assert locate("a/b").path == path
    assert fetch("a/b") == [path]


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (401, "no such repository|access denied"),
        (403, "access forbidden"),
        (404, "no such"),
        (429, "too many requests"),
        (500, r"the server failed \(500\)"),
        (503, r"the server failed \(503\)"),
    ],
)
def test_an_answer_that_is_an_error_is_one_line(hub, repository, status, says):
    hub.faults.status = status
    with pytest.raises(HubError, match=f"^hf.co/a/b:Q8_0: .*({says})") as error:
        locate("a/b:Q8_0")
    assert "\n" not in str(error.value)


def test_a_missing_file_is_an_error_of_one_line(hub, repository):
    for name, says in [
        ("a/other", "no such repository"),
        ("a/b:Q3_K", "has no Q3_K; it has Q4_K_M, Q8_0"),
        ("hf://a/b@v2/x.gguf", "no such revision"),
        ("hf://a/b/x.gguf", "has no x.gguf"),
        ("qwen3:9b", "no such file, and not a name of the catalogue; did you mean 'qwen3:8b'"),
        (f"{hub.content_url}/plain/x.gguf", "no such file"),
    ]:
        hub.repositories["plain/web"] = Repository({})
        with pytest.raises(HubError, match=says) as error:
            locate(name)
        assert "\n" not in str(error.value)


def test_a_gated_repository_needs_a_token(hub, repository, monkeypatch):
    repository.gated = True
    with pytest.raises(HubError, match=r"accept the conditions .* HF_TOKEN"):
        locate("a/b")
    monkeypatch.setenv("HF_TOKEN", hub_server.TOKEN)
    assert locate("a/b").path.read_bytes() == DATA
    tokens = {("content" in path, headers.get("authorization")) for _, path, headers in hub.requests}
    assert tokens == {(False, None), (False, f"Bearer {hub_server.TOKEN}"), (True, None)}, "only the hub sees the token"
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(HubError, match="token in HF_TOKEN is wrong"):
        fetch("a/b")


@pytest.mark.parametrize("address", ["notaurl", "ftp://x.org", "https://", "http://[x", "https://x.org:port"])
def test_a_mirror_has_an_address(hub, monkeypatch, address):
    monkeypatch.setenv("HF_ENDPOINT", address)
    with pytest.raises(HubError, match=r"^HF_ENDPOINT is not an address"):
        fetch("hf.co/a/b")


def test_without_a_network_what_is_here_is_used(hub, repository, monkeypatch):
    path = locate("a/b").path
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert locate("a/b").path == path
    with pytest.raises(HubError, match="HF_HUB_OFFLINE is set"):
        locate("a/b:Q8_0")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    assert locate("a/b").path == path
    with pytest.raises(HubError, match=r"no connection: [^\[]*; check the network, .*HTTPS_PROXY; .*path of its file$"):
        locate("a/b:Q8_0")


def test_two_processes_fetch_one_file_together(hub, repository, tmp_path):
    hub.faults.slow = 0.1
    code = "import sys, pumice.hub; print(pumice.hub.locate('a/b').path)"
    environment = {**os.environ, **hub_server.environment(hub, tmp_path)}
    options = {"env": environment, "stdout": subprocess.PIPE, "text": True}
    runs = [subprocess.Popen([sys.executable, "-c", code], **options) for _ in range(2)]
    paths = [run.communicate(timeout=60)[0].strip() for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert paths[0] == paths[1]
    assert Path(paths[0]).read_bytes() == DATA
    assert sum(n_bytes for _, n_bytes in hub.sent) == len(DATA), "one of them waited"


def test_a_process_that_is_ended_leaves_no_half_file(hub, repository, tmp_path):
    code = "import sys, pumice.hub; pumice.hub.locate('a/b', progress=lambda *_: print('.', flush=True))"
    environment = {**os.environ, **hub_server.environment(hub, tmp_path)}
    for n_packets in (0, 3):
        hub.faults.slow = 0.1
        hub.sent.clear()
        run = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
        wait_until(lambda: hub.sent)
        time.sleep(n_packets * hub.faults.slow)
        run.kill()
        run.wait()
        assert all(path.read_bytes() == DATA for path in cache_directory().rglob("*.gguf"))
    hub.faults.slow = 0.0
    assert locate("a/b").path.read_bytes() == DATA
    kept = [path for path in cache_directory().rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert len(kept) == 3, "the content, its name, and the commit of the revision"


def test_a_web_address_is_fetched_once(hub):
    hub.repositories["plain/web"] = Repository({"x.gguf": DATA})
    url = f"{hub.content_url}/plain/x.gguf"
    hub.faults.cut_after = [100_000]
    path = locate(url).path
    assert path.read_bytes() == DATA
    asked = len(hub.requests)
    assert locate(url).path == path
    assert len(hub.requests) == asked
    assert fetch(url) == [path]
    assert sum(n_bytes for _, n_bytes in hub.sent) == len(DATA)
    hub.repositories["plain/web"].files["x.gguf"] = content(500, 5)
    [new] = fetch(url)
    assert new.read_bytes() == content(500, 5)
    assert locate(url).path == new


class _Usage:
    free = 1000


def test_a_partial_file_that_is_too_long_is_fetched_again(hub, repository):
    blob = cache_directory() / "models--a--b" / "blobs" / f"{hashlib.sha256(DATA).hexdigest()}.incomplete"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(DATA + b"more")
    assert locate("a/b").path.read_bytes() == DATA


def test_another_commit_than_the_one_that_was_asked_for_is_refused(hub, repository, monkeypatch):
    asked = "d" * 40
    monkeypatch.setattr(hub_server._Handler, "_repository", lambda self, repo, revision: repository)
    with pytest.raises(HubError, match="which was not requested"):
        locate(f"hf://a/b@{asked}/M-Q4_K_M.gguf")


def test_a_full_disk_is_said_before_the_download(hub, repository, monkeypatch):
    monkeypatch.setattr("pumice.hub.download.shutil.disk_usage", lambda path: _Usage())
    with pytest.raises(HubError, match="the disk is full: 300,000 bytes are needed, but only 1,000 are free"):
        locate("a/b")
    assert hub.sent == []
