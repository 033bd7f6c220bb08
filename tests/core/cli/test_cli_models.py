"""``pumice pull``, ``list`` and ``rm``, and a model named by its repository in every command."""

import json
from pathlib import Path

import pytest

from gguf_files import tiny_llama
from hub_server import Repository, content
from pumice.config import load_config
from pumice.demo import DEMOS
from pumice.hub.catalogue import catalogue, look_up, models_for
from pumice.hub.names import HubName, parse_name
from pumice.hub.repository import cache_directory


@pytest.fixture
def repository(hub, tmp_path):
    """``a/b``, with a model that runs."""
    data = tiny_llama(tmp_path / "tiny.gguf").read_bytes()
    hub.repositories["a/b"] = Repository({"M-F32.gguf": data, "M-Q8_0.gguf": b"GGUFsmall", "README.md": b"hello"})
    return hub.repositories["a/b"]


def test_every_command_takes_a_name(run, repository):
    done = run("run", "hf.co/a/b:f32", "-p", "hello", "-n", "4", "--temp", "0")
    assert done.returncode == 0, done.stderr
    assert json.loads(run("info", "a/b:F32", "--json").stdout)["architecture"] == "llama"
    assert run("tokenize", "a/b:F32", "-p", "hello").returncode == 0
    assert run("info", "a/b:F32", "--graph").returncode == 0


def test_list_says_what_is_here(run, repository, hub):
    assert run("list").stdout == ""
    assert json.loads(run("list", "--json").stdout) == []
    hub.repositories["plain/web"] = Repository({"x.gguf": content(60)})
    url = f"{hub.content_url}/plain/x.gguf"
    run("pull", "a/b:Q8_0", "a/b:F32", url)
    rows = json.loads(run("list", "--json").stdout)
    assert [(row["name"], row["bytes"]) for row in rows] == [
        ("hf.co/a/b:F32", len(repository.files["M-F32.gguf"])),
        ("hf.co/a/b:Q8_0", 9),
        (url, 60),
    ]
    assert all(Path(row["path"]).exists() and row["modified"][:4] >= "2026" for row in rows)
    assert run("list").stdout.splitlines()[1].split()[:3] == ["hf.co/a/b:Q8_0", "9", "bytes"]


def test_rm_asks_and_removes_only_that(run, repository, hub):
    run("pull", "a/b:Q8_0", "a/b:F32")
    done = run("rm", "a/b:Q8_0", input="n\n")
    assert "Remove hf.co/a/b:Q8_0 (9 bytes)?" in done.stderr
    assert len(json.loads(run("list", "--json").stdout)) == 2
    assert run("rm", "a/b:Q8_0", input="y\n").returncode == 0
    assert [row["name"] for row in json.loads(run("list", "--json").stdout)] == ["hf.co/a/b:F32"]
    assert len(list(cache_directory().glob("*/blobs/*"))) == 1
    assert run("rm", "hf.co/a/b:F32", "--yes").returncode == 0
    assert run("list").stdout == ""
    assert not list(cache_directory().glob("models--*"))


def test_a_download_that_was_cut_is_listed_and_removed(run, repository, hub):
    hub.repositories["plain/web"] = Repository({"x.gguf": content(60)})
    address = f"{hub.content_url}/plain/x.gguf"
    for name in ("a/b:F32", address):
        hub.faults.cut_after = [10] + [0] * 20
        assert run("pull", name).returncode == 1
    hub.faults.cut_after = []
    rows = json.loads(run("list", "--json").stdout)
    found = [(row["name"], row["bytes"], row["unfinished"]) for row in rows]
    assert found == [("hf.co/a/b", 10, True), (address, 10, True)]
    assert run("list").stdout.count("unfinished: pumice pull goes on") == 2
    assert run("rm", "-y", "a/b:F32", address).returncode == 0
    assert run("list").stdout == ""
    assert not list(cache_directory().glob("*/blobs/*"))


def test_rm_removes_nothing_outside_the_cache(run, repository, home):
    run("pull", "a/b:F32")
    own = home / "own.gguf"
    own.write_bytes(b"GGUF")
    [link] = cache_directory().glob("*/snapshots/*/*.gguf")
    link.unlink()
    link.symlink_to(own)
    assert run("rm", "-y", "a/b:F32").returncode == 0
    assert own.exists()
    assert not link.is_symlink()


@pytest.mark.parametrize("name", ["a/b", "model.gguf", "nothing"])
def test_rm_of_what_was_not_fetched(run, hub, home, name):
    (home / "model.gguf").write_bytes(b"GGUF")
    done = run("rm", "-y", name)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {name}")
    assert (home / "model.gguf").exists()


def test_errors_are_one_line(run, hub):
    done = run("run", "hf.co/a/nothing", "-p", "x")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: hf.co/a/nothing: no such repository")
    assert done.stderr.count("\n") == 1
    assert run("run", "", "-p", "x").stderr.startswith("error: the name of the model is empty")
    done = run("pull", "./missing.gguf")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: ./missing.gguf: no such file, and not a name of a model that can be fetched\n"


def test_the_catalogue_is_right(home):
    config = load_config()
    assert len(catalogue(config)) > 20
    for name in catalogue(config):
        entry = look_up(name, config)
        assert isinstance(parse_name(entry.model), HubName) or Path(entry.model) == DEMOS[name]
        load_config(model=entry.options)
        assert (entry.gb is None) == (name in DEMOS), "each size is known before it is fetched"
        assert "trying" not in entry.suits or entry.gb < 1
    for purpose in ("coding", "trying"):
        models = [look_up(name, config).model for name in models_for(purpose, config)]
        assert models
        assert len(set(models)) == len(models), "a model of two names is proposed once"


def test_a_wrong_entry_is_left_out_of_the_list(run, home):
    (home / "pumice.yaml").write_text("models: {x: {n_ctx: 1}, y: {model: a/b}}")
    done = run("list", "--catalogue", "--json")
    assert {"pumice-demo", "y"} < (names := {row["name"] for row in json.loads(done.stdout)})
    assert "x" not in names
    assert done.stderr == "warning: pumice.yaml: models.x: the key 'model' is missing\n"


@pytest.mark.parametrize(
    ("models", "says"),
    [
        ("{x: {n_ctx: 1}}", "pumice.yaml: models.x: the key 'model' is missing"),
        ("{x: {model: y}, y: {model: x}}", "refers to itself"),
        ("{x: {model: y}, y: {model: z}}", "models.x: z: no such file"),
        ("{x: {model: a/b, n_ctxx: 3}}", "pumice.yaml: models.x: unknown key 'n_ctxx'"),
        ("{x: 3}", "models.x"),
        ("{x: {model: a/b, suits: [cooking]}}", "pumice.yaml: models.x: suits"),
        ("{x: {model: a/b, gb: -1}}", "models.x: gb"),
    ],
)
def test_a_wrong_catalogue_is_one_line(run, repository, home, models, says):
    (home / "pumice.yaml").write_text(f"models: {models}")
    repository.files["M-Q4_K_M.gguf"] = repository.files["M-F32.gguf"]
    done = run("run", "x", "-p", "hello", "-n", "1")
    assert done.returncode == 1
    assert says in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
