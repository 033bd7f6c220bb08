"""``pumice serve`` as a process: what it says, what it takes of llama-server's command line, how it ends."""

import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click
import httpx2
import pytest

from gguf_files import tiny_llama
from prepared_commands import Commands, prepared
from pumice.gguf.copy import split
from pumice_server.command.arguments import OPTIONS
from pumice_server.command.choice import choose_models
from pumice_server.command.defaults import take_chat, take_sampling
from pumice_server.command.serve import command
from waiting import PATIENCE, wait_until

SERVE = [sys.executable, "-m", "pumice", "serve"]


@pytest.fixture(scope="module")
def forked() -> Iterator[Commands]:
    with prepared("pumice_server.command.serve") as commands:
        yield commands


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen, str, list[str]]]:
    """The process, its address, and what it has said on stderr."""
    strict = os.environ | {"PYTHONWARNINGS": "error::ResourceWarning"}
    process = subprocess.Popen([*SERVE, "--port", "0", *arguments], stderr=subprocess.PIPE, text=True, env=strict)
    said: list[str] = []
    try:
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"listening on (https?://[^\s\"]+)", line):
                yield process, found[1], said
                break
        else:
            pytest.fail("".join(said))
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_llama_servers_command_line_and_a_stop_that_lets_requests_end():
    options = "-c 256 -np 2 -t 1 -a one,two --jinja -fa on --no-mmap --temp 0 -ngl 99 --backend cpu"
    with serving(*options.split()) as (process, url, said):
        assert any("warning: -fa has no meaning" in line for line in said)
        assert httpx2.get(f"{url}/v1/models", timeout=PATIENCE).json()["data"][0]["id"] == "one"
        assert "one, two" in httpx2.get(url, timeout=PATIENCE).text
        body = {"prompt": "Once", "max_tokens": 200, "ignore_eos": True}
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(httpx2.post, f"{url}/v1/completions", json=body, timeout=PATIENCE)
            slots = partial(httpx2.get, f"{url}/slots", timeout=PATIENCE)
            wait_until(lambda: answer.done() or any(slot["is_processing"] for slot in slots().json()))
            process.send_signal(signal.SIGTERM)
            assert answer.result().json()["usage"]["completion_tokens"] == 200
        assert process.wait(timeout=PATIENCE) == 0
        assert "ResourceWarning" not in process.stderr.read()


def test_a_second_signal_stops_the_server_at_once():
    endless = {"prompt": "Once", "max_tokens": 10**6, "ignore_eos": True, "stream": True}
    with (
        serving("--context-shift", "-t", "1") as (process, url, _),
        httpx2.stream("POST", f"{url}/v1/completions", json=endless, timeout=PATIENCE) as response,
    ):
        assert response.status_code == 200

        def is_stopping() -> bool:
            try:
                return httpx2.get(f"{url}/health", timeout=PATIENCE).status_code == 503
            except httpx2.ConnectError:
                return True

        process.send_signal(signal.SIGTERM)
        wait_until(is_stopping)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0  # running requests would have 30 seconds
        assert "CancelledError" not in process.stderr.read()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "admits other machines"),
        (["--mmproj-url", "x"], "give the file as --mmproj"),
        (["a.gguf", "-m", "b.gguf", "-a", "one"], "--alias names a single model"),
        (["--models-dir", "/nowhere"], "/nowhere is not a folder"),
        (["--api-key", ""], "--api-key': expected KEYS, not ''"),
        (["-ctk", "f16", "-ctv", "q8_0"], "keys and values have one type"),
        (["-ngl", "many"], "expected a number of layers, all or auto"),
        (["--ssl-key-file", "x"], "TLS needs both"),
        (["--ssl-key-file", __file__, "--ssl-cert-file", __file__], "are not a key and its certificates in PEM"),
        (["--models-preset", sys.executable], "not UTF-8: byte"),
        (["--ssl-key-file", "/nowhere", "--ssl-cert-file", "/nowhere"], "--ssl-key-file: there is no file /nowhere"),
        (["--cors-origin", "example.org"], "expected https://NAME, localhost, or * for all, not 'example.org'"),
        (["--slot-save-path", "/absent/a"], "--slot-save-path: there is no folder /absent/a; create it first"),
        (["--conversations", "/absent/a.db"], "--conversations: there is no folder /absent; create it first"),
        (["--no-such"], "No such option"),
        (["--sleep-idle-seconds", "long"], "'long' is not a valid number"),
        (["a.gguf", "b.gguf", "--lora", "c.gguf"], "--lora applies to a single model"),
        (["--control-vector-layer-range", "1", "2", "--lora", "a.gguf"], "layer-range needs a vector"),
        (["--lora", "a/x.gguf,b/x.gguf"], "two adapters are called x"),
        (["--lora-scaled", "x.gguf:much"], "expected FILE:SCALE, not 'x.gguf:much'"),
        (["--lora", "/nowhere.gguf", "--port", "0"], "/nowhere.gguf"),
        (["--samplers", "dance"], "'--samplers': 'dance' is not one of"),
        (["--chat-template-kwargs", "{"], "--chat-template-kwargs is not valid JSON"),
        (["-hff", "x.gguf"], "give -hf too"),
        (["--override-kv", "a=2"], "expected KEY=TYPE:VALUE"),
        (["--embd-normalize", "-1"], "give it with each request, as `embd_normalize`"),
        (["-sp"], "special tokens are not written"),
        (["--api-key-file", "/nowhere"], "--api-key-file: cannot read /nowhere: No such file"),
        (["--api-key-file", sys.executable], "not UTF-8: byte"),
        (["--api-key-file", "/dev/zero"], "more than 16777216 characters"),
        (["--host", "192.0.2.1", "--insecure"], "listen on 192.0.2.1:8080: Cannot assign requested address; --host"),
        (["--host", "no.invalid", "--insecure"], "cannot listen on no.invalid:8080: Name or service not known; --host"),
        (["--host", "/run/pumice.sock"], "or several separated by commas; a reverse proxy can add UNIX sockets"),
        (["--host", "127.0.0.1,0.0.0.0"], "admits other machines"),
        (["absent.gguf", "--port", "0"], "absent.gguf"),
        (["--backend", "absent", "--port", "0"], "absent"),
    ],
)
def test_wrong_options(forked, arguments, message):
    done = forked("serve", *arguments)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_tls(tmp_path):
    files = [str(tmp_path / name) for name in ("key.pem", "certificate.pem")]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on the PATH")
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", files[0], "-out", files[1]]
    subprocess.run([*make, *names], check=True, capture_output=True)
    with serving("--ssl-key-file", files[0], "--ssl-cert-file", files[1]) as (_, url, _):
        assert url.startswith("https://")
        trusted = ssl.create_default_context(cafile=files[1])
        assert httpx2.get(f"{url}/health", verify=trusted, timeout=PATIENCE).json() == {"status": "ok"}


@pytest.mark.parametrize("command", [SERVE, [*SERVE[:-1], "route", "http://127.0.0.1:1"]])
def test_too_few_open_files_are_one_line(command):
    line = ["sh", "-c", 'ulimit -n 20; exec "$@"', "sh", *command, "--port", "0"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "only 20 files may be open, a server needs 64: raise the limit by `ulimit -n 1024`" in done.stderr


def test_a_folder_of_models(tmp_path):
    """A split model is listed by its first part; other files are not listed, whatever their names are."""
    for name in ("b.gguf", "mmproj-b.gguf", "b.txt"):
        tiny_llama(tmp_path / name)
    split(tmp_path / "b.gguf", tmp_path / "a", lambda tensors: [1, len(tensors) - 1])
    (tmp_path / "folder.gguf").mkdir()
    (tmp_path / "gone.gguf").symlink_to(tmp_path / "nowhere")
    options = {"hf_file": None, "hf_repo": (), "models_dir": tmp_path, "models_catalogue": False, "model": ()}
    found = choose_models([], {**options, "model_url": ()})
    assert [Path(path).name for path in found] == ["a-00001-of-00002.gguf", "b.gguf"]


@pytest.mark.parametrize("bad", ["bad.gguf", "folder"])
@pytest.mark.parametrize("order", [["good", "bad"], ["bad", "good"], ["good", "-m", "bad"]])
def test_a_damaged_model_among_several_is_refused_before_anything_is_served(forked, tmp_path, order, bad):
    good = tiny_llama(tmp_path / "good.gguf")
    (tmp_path / "bad.gguf").write_bytes(good.read_bytes()[:5000])
    (tmp_path / "folder").mkdir()
    paths = {"-m": "-m", "good": str(good), "bad": str(tmp_path / bad)}
    done = forked("serve", *map(paths.__getitem__, order))
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {tmp_path / bad}: ")
    assert done.stderr.count("\n") == 1


def test_an_absent_or_wrong_model_is_named_before_anything_is_served(forked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_llama(tmp_path / "good.gguf")
    config = tmp_path / "c.yaml"
    (tmp_path / "cut.gguf").write_bytes((tmp_path / "good.gguf").read_bytes()[:5000])
    config.write_text(
        f"models:\n  mine: {{model: {tmp_path}/gone.gguf}}\n  cut: {{model: {tmp_path}/cut.gguf}}\n"
        f"  wrong: {{model: {tmp_path}/good.gguf, n_ctz: 5}}\n  other: {{model: {tmp_path}/good.gguf}}\n"
        f"  adapted: {{model: {tmp_path}/good.gguf, adapters: {{a: gone.gguf}}}}\n"
    )
    for arguments, said in (
        (["good.gguf", "missing.gguf"], "error: missing.gguf: no such file"),
        (["good.gguf", "mine"], f"error: {config}: models.mine: {tmp_path}/gone.gguf: no such file"),
        (["good.gguf", "cut"], f"error: {tmp_path}/cut.gguf: "),
        (["good.gguf", "wrong"], f"error: {config}: models.wrong: unknown key 'n_ctz'"),
        (["good.gguf", "adapted"], "error: adapters.a: gone.gguf: no such file"),
        (["good.gguf", "other", "--speculate", "wrong"], "error: --speculate: unknown proposer 'wrong'"),
        (["good.gguf", "other", "--speculate", "draft"], "error: --speculate: 'draft' needs a draft model"),
        (["good.gguf", "other", "--speculate", "mtp"], "error: --speculate: 'mtp': good.gguf has no layer that drafts"),
        (["good.gguf", "other", "--cache-disk", "c.yaml"], f"error: --cache-disk: {config} must be a folder"),
        (["good.gguf", "other", "-md", "gone.gguf"], "error: -md: gone.gguf: no such file"),
        (["good.gguf", "other", "-dev", "gpu"], "error: -dev: 'gpu' is not a device"),
        (["good.gguf", "other", "--chat-template", "none"], "error: unknown chat template 'none'"),
    ):
        done = forked("serve", "--port", "0", *arguments, PUMICE_CONFIG=str(config))
        assert done.returncode == 1
        assert said in done.stderr


def test_every_option_of_llama_server_is_taken_left_out_or_refused():
    """With as many values as there; see tests/make_fixtures/llama_options.py."""
    theirs = json.loads((Path(__file__).parents[2] / "fixtures" / "llama_options.json").read_text())
    options = [param for param in command.params if isinstance(param, click.Option)]
    ours = {name: int(not each.is_flag) for each in options for name in (*each.opts, *each.secondary_opts)}
    translated = {name: translation.n_values for name, translation in OPTIONS.translations.items()}
    taken = {**ours, **OPTIONS.ignored, **translated, "-h": 0, "--help": 0}
    assert len(theirs) > 400
    counted = theirs.keys() - {*OPTIONS.refused}
    assert {name: taken.get(name) for name in counted} == {name: theirs[name] for name in counted}
    assert len(ours) + len(OPTIONS.ignored) + len(OPTIONS.refused) == len({*ours, *OPTIONS.ignored, *OPTIONS.refused})


def test_defaults_of_sampling_and_chats():
    line = "-s 7 --temperature 0.5 --top-nsigma 2 --samplers top_k;temperature --dry-sequence-breaker none --ignore-eos"
    line += ' -rea off --reasoning-budget 5 --chat-template-kwargs {"a":1}'
    options = command.make_context("serve", line.split()).params
    sampling = {"seed": 7, "temperature": 0.5, "top_n_sigma": 2.0, "dry_sequence_breakers": [], "ignore_eos": True}
    samplers = ["logit_bias", "top_k", "temperature", "greedy", "mirostat", "dist"]
    assert take_sampling(options) == {"samplers": samplers, "sampling": sampling}
    assert take_chat(options) == {"reasoning": False, "reasoning_budget": 5, "template_variables": {"a": 1}}


@pytest.mark.parametrize(("line", "reasons"), [("", True), ("-rea auto", True), ("-rea on", True), ("-rea off", False)])
def test_models_that_can_reason_do_unless_it_is_switched_off(line, reasons):
    assert take_chat(command.make_context("serve", line.split()).params)["reasoning"] is reasons


def test_the_unit_of_systemd_has_options_that_are_known():
    unit = (Path(__file__).parents[3] / "deploy" / "pumice.service").read_text()
    line = re.search(r"^ExecStart=\S+ serve (.*)$", unit, re.MULTILINE)[1]
    assert command.make_context("serve", line.split()).params["models_catalogue"]


def test_requests_as_lines_of_json():
    with serving("--log-jsonl", "-n", "5") as (process, url, said):
        assert all(json.loads(line)["message"] for line in said)
        body = {"prompt": "Once my password", "max_tokens": 50, "ignore_eos": True}
        post = partial(httpx2.post, f"{url}/v1/completions", timeout=PATIENCE)
        answer = post(json=body, headers={"X-Request-Id": "mine"})
        assert answer.json()["usage"]["completion_tokens"] == 5
        lines = (text for text in process.stderr if "id" in json.loads(text))  # a slow start is told before
        text = next(lines)
        assert "password" not in text
        assert answer.json()["choices"][0]["text"] not in text
        refused = {"prompt": "my password " * 600, "stop": ["my password"], "temperature": "my password"}
        assert post(json=refused).status_code == 400
        assert "password" not in next(lines)
        assert post(json={"prompt": "Once " * 10_000}).status_code == 400
        line = json.loads(text)
        assert json.loads(next(lines))["model"] == line["model"]
        with httpx2.stream("GET", f"{url}/models/sse", timeout=PATIENCE) as response:
            assert response.status_code == 200
        left = json.loads(next(lines))
        assert (left["path"], left["status"], left["left"]) == ("/models/sse", 200, True)
        process.send_signal(signal.SIGHUP)
        assert "no --api-key-file to read again" in next(process.stderr)
    told = {"id": "mine", "address": "127.0.0.1", "method": "POST", "path": "/v1/completions", "status": 200}
    assert line.items() >= (told | {"generated_tokens": 5, "level": "info"}).items()
    assert line["ms"] > line["first_token_ms"] > 0


def test_warnings_of_engines_name_their_model(tmp_path):
    paths = [str(tiny_llama(tmp_path / f"{name}.gguf")) for name in "ab"]
    with serving(*paths, "-ngl", "99", "--backend", "cpu") as (process, url, _):
        body = {"model": "b", "prompt": "Once", "max_tokens": 1}
        assert httpx2.post(f"{url}/v1/completions", json=body, timeout=PATIENCE).status_code == 200
        warning = next(line for line in process.stderr if line.startswith("warning: -ngl: 99 has no effect"))
        assert warning.endswith("(model b)\n")


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["--spec-type", "ngram-simple,ngram-cache"], "ngram-simple,ngram-cache"),
        (["--spec-type=none"], "off"),
        (["--spec-type", "draft-mtp,ngram-map-k4v"], "mtp,ngram-map-k4v"),
        (["--spec-default"], "ngram-mod"),
        (["--spec-type", "draft-simple"], "draft"),
    ],
)
def test_types_of_speculation_are_proposers(given, names):
    assert OPTIONS.leave_out([*given, "-c", "10"], {"-c": True}) == (["--speculate", names, "-c", "10"], [])
