"""llama-server's presets: models of an INI file, each with options of its own."""

from contextlib import nullcontext
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import pumice
from gguf_files import tiny_llama
from pumice.plugin.unstable import ModelSpec
from pumice_server.command.serve import command

INI = """
version = 1

; shared
[*]
c = 512
temp = 0.5

[small]
model = {folder}/a.gguf
LLAMA_ARG_CTX_SIZE = 256
top-k = 7
jinja = true
flash-attn = on
alias = little,tiny
load-on-startup = true

# by its name in the folder
[b]
temp = 0.9
context-shift = off
"""


@pytest.fixture
def specs(monkeypatch, tmp_path):
    """The models that a command line would serve."""
    for name in "ab":
        tiny_llama(tmp_path / f"{name}.gguf")
    served: list[ModelSpec] = []
    monkeypatch.setattr("pumice_server.command.serving.serve", lambda specs, *_, **__: served.extend(specs))
    monkeypatch.setattr("pumice_server.command.beginning.listen", lambda _: nullcontext([]))
    monkeypatch.setattr("pumice_server.command.beginning.begun", lambda *_: nullcontext(lambda: None))

    def specs(text: str, *arguments: str) -> dict[str, ModelSpec]:
        file = tmp_path / "models.ini"
        file.write_text(text.replace("{folder}", str(tmp_path)), "utf-8")
        served.clear()
        result = CliRunner().invoke(command, ["--models-preset", str(file), *arguments])
        if isinstance(result.exception, SystemExit) and result.exit_code:
            raise click.ClickException(result.output)
        if result.exception:
            raise result.exception
        return {spec.names[0]: spec for spec in served}

    return specs


def test_models_with_options_of_their_own(specs, tmp_path):
    text = INI.replace("context-shift = off\n", "")
    found = specs(text, "--models-dir", str(tmp_path))
    assert list(found) == ["a", "small", "b"]
    assert found["small"].names == ["small", "little", "tiny"]
    assert [Path(spec.path).name for spec in found.values()] == ["a.gguf", "a.gguf", "b.gguf"]
    assert [spec.options["n_ctx"] for spec in found.values()] == [None, 256, 512]
    sampling = [spec.options["config"]["sampling"] for spec in found.values()]
    assert sampling == [{}, {"temperature": 0.5, "top_k": 7}, {"temperature": 0.9}]


def test_the_command_line_takes_precedence(specs, monkeypatch):
    text = "[x]\nmodel = {folder}/a.gguf\nc = 64\nset = n_batch=32\ntemp = 0.3"
    spec = specs(text, "-c", "128", "--set", "sampling.top_k=3")["x"]
    assert spec.options["n_ctx"] == 128
    assert spec.options["config"]["n_batch"] == 32
    assert spec.options["config"]["sampling"] == {"top_k": 3, "temperature": 0.3}
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "99")
    assert specs(text)["x"].options["n_ctx"] == 99


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no section"),
        ("[x]\nmodel = {folder}/a.gguf\nport = 9", "[x] port: the option applies to the whole server"),
        ("[x]\nmodel = {folder}/a.gguf\ntemprature = 1", "[x] temprature: unknown option; did you mean"),
        ("[x]\nmodel = {folder}/a.gguf\ncpu-moe = perhaps", "expected on or off, not 'perhaps'"),
        ("[x]\nmodel = {folder}/a.gguf\nrpc = a", "[x] rpc: other machines take part"),
        ("[x]\nno-sandbox = on", "whole server"),
        ("[x]\nc = 5", "x: no such file"),
        ("[x]\nmodel = {folder}/a.gguf\nc = lots", "models.ini: [x]: Invalid value for '-c' / '--ctx-size': 'lots'"),
        ("; " + "a" * (1 << 20), "more than 1 MiB"),
        ("".join(f"[{i}]\nmodel = {{folder}}/a.gguf\n" for i in range(1001)), "1001 sections; at most 1000 are read"),
        ("version = 2\n[x]\nc = 5", "version '2' is unknown"),
        ("\ufeffversion = 2\n[x]\nc = 5", "version '2' is unknown"),
        ("c = 5\n[x]\nmodel = {folder}/a.gguf", "c stands before the first section; put it into [*]"),
        ("[x\nc = 5", "models.ini: line 1: expected [name] or key = value, not '[x\\n'"),
        ("version = 1\n 1\n[x]\nc = 5", "version '1\\n1' is unknown"),
        ("[x]\nh\0 = 5", "the character '\\x00' is not allowed"),
        ("[a]\nmodel = {folder}/a.gguf\nalias = b\n[b]\nmodel = {folder}/b.gguf", "two models are called b"),
    ],
)
def test_errors_of_a_preset_file(specs, text, message):
    with pytest.raises((click.ClickException, pumice.HubError), match=r"\S") as error:
        specs(text)
    assert message in " ".join(str(error.value).split())
