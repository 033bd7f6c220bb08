import os
from pathlib import Path

import pytest

from pumice.config import bundled_config, load_config
from pumice.errors import ConfigError

pytestmark = pytest.mark.usefixtures("home")


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def user_file(home: Path) -> Path:
    return home.parent / "xdg" / "pumice" / "config.yaml"


def test_each_layer_overrides_those_below(home, monkeypatch):
    layers = [user_file(home), home / "pumice.yaml", home.parent / "named.yaml"]
    sources = [write(path, f"n_batch: {10 + number}") for number, path in enumerate(layers)]
    monkeypatch.setenv("PUMICE_CONFIG", sources[2])
    assert load_config({"n_batch": 13}).n_batch == 13
    assert load_config({"n_batch": None}).n_batch == 12
    layers[2].write_text("")
    assert load_config().n_batch == 11
    layers[1].unlink()
    assert load_config().n_batch == 10
    assert load_config().source("n_batch") == sources[0]
    assert not load_config().is_default("n_batch")
    assert load_config().is_default("n_ctx")


def test_maps_are_merged_and_lists_replaced(home):
    write(user_file(home), "sampling: {top_k: 5, temperature: 0.5}\nbackends: [numpy, cpu]\nmy: {a: 1, b: [1, 2]}")
    write(home / "pumice.yaml", "sampling: {top_k: 9}\nbackends: [cpu]\nmy: {b: [3]}")
    config = load_config({"sampling": {"min_p": 0.1}})
    assert config.sampling == {"top_k": 9, "temperature": 0.5, "min_p": 0.1}
    assert config.backends == ["cpu"]
    assert config.backend_options("my") == {"a": 1, "b": [3]}
    assert config.backend_options("other") == {}
    assert config.source("my", "a") == str(user_file(home))


def test_a_file_of_comments_and_keys_without_values_changes_nothing(home):
    write(home / "pumice.yaml", "# nothing\nsampling:\n  # temperature: 1\n")
    assert load_config().as_mapping() == bundled_config({}).as_mapping()
    assert load_config().sampling == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bakend: cpu", "unknown key 'bakend'; did you mean 'backend'?"),
        ("zzz: 1", "unknown key 'zzz' (a backend's section should be a mapping, not 1)"),
        ("plugins: {dissabled: []}", "unknown key 'plugins.dissabled'; did you mean 'disabled'?"),
        ("plugins: {prefer: {backends: cpu}}", "plugins.prefer.backends: should be a mapping, not 'cpu'"),
        ("plugins: {zzz: 1}", "unknown key 'plugins.zzz' (known: disabled, prefer)"),
        ("n_ctx: many", "n_ctx: should be an integer, at least 0, not 'many'"),
        ('plugins: {prefer: {backends: {"a\\nb": }}}', "plugins.prefer.backends.a?b: should be a string, not null"),
        ("n_ctx: yes", "n_ctx: should be an integer, at least 0, not true"),
        ("n_ctx: -1", "n_ctx: should be an integer, at least 0, not -1"),
        ("n_batch: 0", "n_batch: should be an integer, at least 1, not 0"),
        ("kv_type: f64", "kv_type: should be one of f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0, not 'f64'"),
        ("backends: numpy", "backends: should be a list of strings, not 'numpy'"),
        ("samplers: [top_k, 3]", "samplers.1: should be a string, not 3"),
        ("sampling: 1", "sampling: should be a mapping of names to values, not 1"),
        ("draft: ' '", "draft: should be the name of a file, or empty, not ' '"),
        ("plugins: x", "plugins: should be a mapping, not 'x'"),
        ("- a", "expected `key: value` lines, not a list"),
        ("3", "expected `key: value` lines, not 3"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_its_file(home, monkeypatch, text, message):
    path = home.parent / "named.yaml"
    write(home / "pumice.yaml", "n_ctx: 100")
    path.write_text(text)
    monkeypatch.setenv("PUMICE_CONFIG", str(path))
    with pytest.raises(ConfigError) as caught:
        load_config()
    assert str(caught.value) == f"{path}: {message}"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("n_ctx: 1\nbackend: [a\n", "pumice.yaml:3: not valid YAML"),
        ("n_ctx: 1\n\tbackend: a\n", "pumice.yaml:2: not valid YAML"),
        ("n_ctx: 1\nbackend: a\nn_ctx: 2\n", "pumice.yaml:3: not valid YAML: key 'n_ctx' is there twice"),
        ("n_ctx: \x01", "pumice.yaml: not valid YAML"),
        ("n_ctx: 1\na: 2001-13-45\n", "pumice.yaml: not valid YAML: a value is not what its form or its tag says"),
        ("n_ctx: !!int x\n", "pumice.yaml: not valid YAML: a value is not what"),
        ("a: 0x_\n", "pumice.yaml: not valid YAML: a value is not what"),
        ("a: !!set t\n", "pumice.yaml: not valid YAML: a value is not what"),
        ("[" * 5000, "pumice.yaml: not valid YAML: it is nested too deeply"),
    ],
)
def test_invalid_yaml_is_reported_with_file_and_line(home, text, where):
    write(home / "pumice.yaml", text)
    with pytest.raises(ConfigError) as caught:
        load_config()
    assert str(caught.value).startswith(where)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
        (os.mkfifo, "not a regular file"),
        (lambda path: path.write_bytes(b"#" * ((1 << 20) + 1)), "more than 1048576 bytes"),
    ],
    ids=["device", "fifo", "large"],
)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no such files here")
def test_a_file_without_end_is_refused(home, make, reason):
    make(home / "pumice.yaml")
    with pytest.raises(ConfigError, match=f"^pumice\\.yaml: cannot read it: {reason}"):
        load_config()


@pytest.mark.parametrize("key", ["mmproj", "vocoder", "draft", "cache_disk", "cache_saved"])
@pytest.mark.parametrize(
    ("value", "problem"),
    [("a\0b", "should be a path"), ("a\ud800", "should be a path"), ("x" * 5000, "should be a shorter path")],
)
def test_what_can_be_no_path_is_refused(home, key, value, problem):
    with pytest.raises(ConfigError, match=f"{key}: {problem}"):
        load_config({key: value})


def test_files_may_be_named_from_the_home_folder(home, monkeypatch):
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    write(user_file(home), "{mmproj: ~/m.gguf, draft: ~/d.gguf, vocoder: ~/v.gguf, adapters: {a: ~/a.gguf}}")
    config = load_config({"cache_disk": "~/c"})
    files = [config.mmproj, config.draft, config.vocoder, config.adapters["a"].file, config.cache_folder]
    assert [os.path.relpath(file, home) for file in files] == ["m.gguf", "d.gguf", "v.gguf", "a.gguf", "c"]


def test_a_named_file_that_does_not_exist_is_an_error(monkeypatch):
    monkeypatch.setenv("PUMICE_CONFIG", "/nowhere/pumice.yaml")
    with pytest.raises(ConfigError, match=r"\$PUMICE_CONFIG.*'/nowhere/pumice.yaml'"):
        load_config()


@pytest.mark.parametrize(
    "settings",
    [
        *("mmproj: ../secret", "draft: ../elsewhere", "draft: /", "mmproj: link.gguf", "adapters: {a: ../secret}"),
        *("adapters: {a: {file: folder/secret}}", "models: {x: {model: ../elsewhere}}"),
        *("models: {mine: {mmproj: ../secret}}", "models: {mine: {adapters: {a: {file: ../secret}}}}"),
        "mmproj: ~/secret",
    ],
)
def test_a_projects_file_names_no_files_elsewhere(home, monkeypatch, settings):
    """A confined process may read the files that a project's file names."""
    monkeypatch.setenv("HOME", str(home.parent))
    elsewhere = home.parent / "elsewhere"
    elsewhere.mkdir()
    secret = home.parent / "secret"
    secret.touch()
    (elsewhere / "secret").touch()
    (home / "link.gguf").symlink_to(secret)
    (home / "folder").symlink_to(elsewhere)
    write(user_file(home), "models: {mine: {model: a/b.gguf}}")
    project = home / "pumice.yaml"
    write(project, settings)
    with pytest.raises(ConfigError, match="outside of its folder it names only files of weights"):
        load_config()
    project.rename(home.parent / "named.yaml")
    monkeypatch.setenv("PUMICE_CONFIG", str(home.parent / "named.yaml"))
    load_config()


def test_a_projects_file_names_its_own_files_and_weights(home):
    blob = home.parent / "models--a--b" / "blobs" / "0123"
    files = (home / "own", home / "folder" / "config.json", home.parent / "draft.gguf", blob)
    for file in files:
        write(file, "")
    (home.parent / "linked.gguf").symlink_to(blob)
    for name in ("own", "folder", "../draft.gguf", "../linked.gguf", "../missing", "hf.co/a/b:Q4_K_M"):
        write(home / "pumice.yaml", f"draft: {name}\nmodels: {{a: {{model: {name}}}}}\nadapters: {{x: {name}}}")
        load_config()
    write(home / "pumice.yaml", 'models: {a: {model: "a\\0b"}}\nadapters: {x: "a\\0b"}')
    load_config()


def test_merged_keys_are_bounded(home):
    """Each line merges the one before nine times: 400 million keys."""
    lines = ["a0: &a0 {x: 1}", *(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 10))]
    (home / "pumice.yaml").write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=r"^pumice\.yaml:\d: not valid YAML: more than 10000 keys of one map"):
        load_config()


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "9" * 5000, "-9007199254740993", "59:" * 3000 + "59"])
def test_integers_are_bounded(home, number):
    (home / "pumice.yaml").write_text(f"n_ctx: {number}")
    with pytest.raises(ConfigError, match=r"^pumice\.yaml:1: not valid YAML: a number beyond 9007199254740992"):
        load_config()
