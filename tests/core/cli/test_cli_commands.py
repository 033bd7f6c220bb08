import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import gguf
import pytest

from installed_plugins import backend_plugin, install
from pumice.cli.messages import in_flags
from pumice.cli.options import parse_settings
from pumice.commands import COMMANDS, GROUPS, OTHER_NAMES
from waiting import PATIENCE


def test_help_lists_every_command(run):
    done = run()
    assert done.returncode == 0
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)
    assert re.findall(r"^([A-Z][\w ]+):$", done.stdout, re.MULTILINE)[1:] == list(GROUPS)
    assert "...\n  " not in done.stdout.partition("Use a model:")[2], "the first line of a command's help is cut"
    for name in COMMANDS:
        assert run(name, "--help").returncode == 0


def test_version_is_that_of_the_distribution(run):
    import pumice

    for argument in ("--version", "-V", "version"):
        assert run(argument).stdout == f"pumice {pumice.__version__}\n"


def test_a_mistyped_command_never_suggests_one_that_removes(run):
    done = run("rum")
    assert done.returncode == 2
    assert "did you mean 'run'?" in done.stderr
    assert "did you mean" not in run("rmm").stderr.replace("did you mean 'run'", "")


def test_commands_of_other_programs_say_what_to_use_here(run):
    assert not OTHER_NAMES.keys() & COMMANDS.keys()
    for text in OTHER_NAMES.values():
        named = re.findall(r"`pumice (\w+)", text)
        assert all(name in {*COMMANDS, "serve"} for name in named)
    done = run("show", "a.gguf")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: there is no command 'show': `pumice info` shows the properties of a model")


def test_info_agrees_with_the_gguf_package(run, model):
    facts = json.loads(run("info", model, "--json").stdout)
    reader = gguf.GGUFReader(model)
    assert facts["architecture"] == "llama"
    assert facts["parameters"] == sum(int(tensor.n_elements) for tensor in reader.tensors)
    assert facts["n_tensors"] == len(reader.tensors)
    assert facts["quantization"] == {"F32": {"tensors": len(reader.tensors), "parameters": facts["parameters"]}}
    assert (facts["n_layers"], facts["n_embd"], facts["n_ctx_train"]) == (2, 64, 256)
    assert (facts["tokenizer"], facts["n_vocab"], facts["name"]) == ("llama", 300, None)
    (device,) = facts["placement"]["devices"]
    assert device["bytes"] > facts["parameters"] * 4
    assert device["layers"] == [0, 1, 2]
    text = run("info", model).stdout
    assert f"{facts['parameters']:,}" in text
    assert "placement     no GPU layers" in text
    assert "F32 100.0%" in text


@pytest.mark.parametrize(("option", "error"), [("--device", "'abc' is not a device"), ("-mv", "abc: no such file")])
def test_info_refuses_a_wrong_option(run, model, option, error):
    done = run("info", model, option, "abc")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {option}: {error}")


def test_info_prints_the_graph(run, model):
    done = run("info", model, "--graph", "--set", "backend=numpy", "--set", "n_ctx=64")
    assert "on numpy" in done.stdout
    assert "blk.1.attn_q.weight" in done.stdout
    assert "= silu(" in done.stdout


def test_tokenize_gives_ids(run, model):
    done = run("tokenize", model, "-p", "é", "--json")
    import pumice

    assert json.loads(done.stdout) == pumice.load_tokenizer(model).tokenize("é")
    with_special = json.loads(run("tokenize", model, "-p", "<s>", "--json").stdout)
    assert json.loads(run("tokenize", model, "-p", "<s>", "--json", "--no-add-special").stdout) == with_special[1:]
    plain = json.loads(run("tokenize", model, "-p", "<s>", "--json", "--no-parse-special").stdout)
    assert len(plain) > len(with_special)
    assert run("tokenize", model, input="é\n").stdout.splitlines()[0].split() == ["1", "'<s>'"]


def test_tokenize_takes_the_command_lines_of_run_and_of_llama_tokenize(run, model, home):
    (home / "text.txt").write_text("Once upon\n")
    expected = run("tokenize", model, "-p", "Once upon", "--json").stdout
    for arguments in (
        (model, "Once upon", "--json"),
        ("-m", model, "Once upon", "--json"),
        ("-m", model, "-f", "text.txt", "--ids"),
        (model, "-e", r"Once\x20upon", "--json"),
    ):
        assert run("tokenize", *arguments).stdout == expected, arguments
    done = run("tokenize", "-m", model, "--stdin", "--ids", "--no-bos", "--show-count", input="Once upon\n")
    assert json.loads(done.stdout) == json.loads(expected)[1:]
    assert done.stderr == f"{len(json.loads(done.stdout))} tokens\n"
    done = run("tokenize", model, "Once", "-p", "upon")
    assert (done.returncode, done.stdout) == (2, "")
    assert "two prompts: one as TEXT and one with -p; give only one" in done.stderr


def test_config_shows_each_value_with_its_source(run, home):
    (home / "pumice.yaml").write_text("n_ctx: 77\nsampling: {top_k: 3}\nnumpy: {cache_mib: 5}")
    shown = json.loads(run("config", "--json", "--backend", "cpu", "-t", "2").stdout)
    assert [Path(path).name for path in shown["files"]] == ["registry.yaml", "pumice.yaml"]
    settings = {key: (item["value"], Path(item["source"]).name) for key, item in shown["settings"].items()}
    assert settings["n_ctx"] == (77, "pumice.yaml")
    assert settings["n_parallel"] == (4, "registry.yaml")
    assert settings["backend"] == ("cpu", "arguments")
    assert settings["cpu.threads"] == (2, "arguments")
    assert settings["numpy.cache_mib"] == (5, "pumice.yaml")
    assert settings["sampling.top_k"] == (3, "pumice.yaml")
    assert settings["sampling.top_p"] == (0.95, "built in")
    assert settings["vulkan.driver"] == ("auto", "built in")
    text = run("config").stdout
    assert "\n[1] pumice.yaml\n" in text
    assert re.search(r"^\[1\] +n_ctx +77$", text, re.MULTILINE)
    (home / "pumice.yaml").write_text("sampling: {top_k: three}")
    assert run("config").stderr.startswith("error: pumice.yaml: sampling: top_k must be an integer")


def test_plugins_are_listed_with_their_errors(run, site):
    install(site, "my-plugin", backend_plugin("mine"), name="mine", version="2.5")
    install(site, "failing", "import no_such_module")
    done = run("plugins", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    plugins = {info["name"]: info for info in json.loads(done.stdout)}
    assert plugins["numpy"]["registered"] == {"backends": ["numpy"]}
    assert plugins["mine"].pop("seconds") > 0
    assert plugins["mine"] == {
        "name": "mine",
        "distribution": "my-plugin",
        "version": "2.5",
        "hooks": ["pumice_register_backends"],
        "registered": {"backends": ["mine"]},
        "error": None,
        "disabled": False,
        "problems": [],
    }
    assert plugins["failing"]["error"] == "ModuleNotFoundError: No module named 'no_such_module'"
    text = run("plugins").stdout
    assert "mine (my-plugin 2.5)\n  hooks: pumice_register_backends\n  backends: mine\n" in text
    assert "failing (failing 1.0)\n  not loaded: ModuleNotFoundError" in text


def test_plugins_shows_what_cannot_be_used(run, site):
    install(site, "first", backend_plugin("mine"))
    install(site, "second", backend_plugin("mine").replace("'mine', MyBackend", "'mine', 'nowhere:MyBackend'"))
    install(site, "third", backend_plugin("other").replace("'other', MyBackend", "'other', 'nowhere:MyBackend'"))
    done = run("plugins", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    problems = {info["name"]: info["problems"] for info in json.loads(done.stdout)}
    (conflict,) = problems["first"]
    assert conflict.startswith("plugins 'first' and 'second' both register the backend 'mine'; choose one")
    assert problems["second"] == [conflict]
    why = "backend 'other' (plugin third): nowhere:MyBackend: ModuleNotFoundError: No module named 'nowhere'"
    assert problems["third"] == [why]
    assert f"\n  problem: {why}\n" in run("plugins").stdout


def test_devices_says_why_a_backend_is_not_available(run, site, home):
    unavailable = "\n    @classmethod\n    def unavailable(cls): "
    for name, body in [("lacking", "return 'no driver; install one'"), ("broken", "1 / 0")]:
        source = backend_plugin(name).replace("    Options = Options\n", f"    Options = Options{unavailable}{body}\n")
        install(site, name, source)
    (home / "pumice.yaml").write_text("backends: [absent, numpy]")
    devices = {item["backend"]: item for item in json.loads(run("devices", "--json").stdout)}
    assert devices["numpy"]["available"]
    assert devices["numpy"]["devices"][0]["kind"] == "cpu"
    assert devices["numpy"]["devices"][0]["memory_bytes"] > 2**20
    reasons = {name: devices[name]["reason"] for name in ("lacking", "broken", "absent")}
    assert reasons["lacking"] == "no driver; install one"
    assert reasons["broken"] == ("backend 'broken' (plugin broken): unavailable: ZeroDivisionError: division by zero")
    assert reasons["absent"].startswith("not installed")
    assert "lacking: no driver; install one\n" in run("devices").stdout


def test_bench_measures_both_tests(run, model):
    done = run("bench", model, "-p", "8", "-n", "4", "-r", "2", "--json", "--backend", "numpy")
    assert done.stderr == ""
    results = json.loads(done.stdout)
    assert [item["test"] for item in results] == ["pp8", "tg4"]
    for item in results:
        assert set(item) == {"test", "tokens_per_second", "stddev", "backend", "model"}
        assert item["tokens_per_second"] > 1
        assert (item["backend"], item["model"]) == ("numpy", model)
    assert run("bench", model, "-p", "0", "-n", "4", "-r", "1").stdout.startswith("tg4 ")
    assert run("bench", model, "-p", "0", "-n", "4", "-r", "1", "-d", "9").stdout.startswith("tg4 @ d9 ")


def test_bench_measures_several_sequences(run, model):
    done = run("bench", model, "-p", "8", "-n", "4", "-r", "1", "-npl", "2", "--json", "--backend", "numpy")
    tests = {item["test"]: item["tokens_per_second"] > 1 for item in json.loads(done.stdout)}
    assert tests == {"pp8": True, "tg4": True}


def test_settings_are_dotted_keys_with_yaml_values():
    settings = parse_settings(("a.b=x", "a.c=[1, y]", "d=b=c", "e="))
    assert settings == {"a": {"b": "x", "c": [1, "y"]}, "d": "b=c", "e": None}


def test_interrupting_while_modules_are_imported_is_silent(tmp_path):
    (tmp_path / "click.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "pumice", "chat"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout.readline() == b"importing\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE) == (b"", b"")
    assert process.returncode == -signal.SIGINT  # a shell says 130


@pytest.mark.parametrize(
    ("message", "words", "expected"),
    [
        ("n_ctx is 16; raise n_ctx", ["run", "-c", "16"], "-c is 16; raise -c"),
        ("n_ctx is 16; raise n_ctx", ["run"], "--ctx-size is 16; raise --ctx-size"),
        ("n_ctx is 16", ["run", "--ctx-size=16"], "--ctx-size is 16"),
        ("devices: '9' is not a device", ["run", "-dev", "9"], "-dev: '9' is not a device"),
        ("the devices: none", ["run", "-dev", "9"], "the devices: none"),
        ("unknown key 'n_ctx'; n_ctx=3 and x.n_ctx", [], "unknown key 'n_ctx'; --ctx-size 3 and x.n_ctx"),
        ("arguments: draft_min is 9, more than draft_max", [], "--draft-min is 9, more than --draft-max"),
        ("arguments: n_ctx: should be an integer", ["--set", "n_ctx=a"], "--set n_ctx: should be an integer"),
        ("json_schema: not valid JSON", ["run", "-j", "{"], "-j: not valid JSON"),
    ],
)
def test_errors_name_the_flag_that_was_typed(message, words, expected, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["pumice", *words])
    assert in_flags(message) == expected
