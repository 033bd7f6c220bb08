"""Modelfiles, the entries that they become, and the commands that make, show and remove them."""

import pytest
from click.testing import CliRunner

from pumice import ConfigError
from pumice.cli.create import command
from pumice.config import load_config
from pumice.demo import DEMOS
from pumice.hub.catalogue import chat_defaults, look_up
from pumice.hub.created import create_model, created_models, remove_created
from pumice.hub.modelfile import catalogue_record, parse_modelfile

TEXT = '''\
# A pirate
FROM ./tiny.gguf
PARAMETER temperature 0.5
parameter num_ctx 256
PARAMETER num_predict 7
PARAMETER stop "AI assistant:"
PARAMETER stop <end>
PARAMETER num_thread 2
PARAMETER use_mmap true
SYSTEM """You are a "pirate".
# not a comment
Be brief."""
MESSAGE user Hi
MESSAGE assistant """Arr,
matey"""
TEMPLATE chatml
LICENSE """
FROM nothing
"""
'''


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "FROM is missing"),
        ("FROM a\nFROM b", "Modelfile:2: FROM is there twice"),
        ("FROM a\nPARAMETER top_k many", "Modelfile:2: PARAMETER top_k must be an integer, not 'many'"),
        ("FROM a\nPARAMETER heat 3", "unknown PARAMETER 'heat'"),
        ("FROM a\nPARAMETER stop", "PARAMETER"),
        ("FROM a\nSYSTEM", "expected an instruction and its argument"),
        ('FROM a\n\nSYSTEM """x', 'Modelfile:3: the text has no end: """ is missing'),
        ("FROM a\nMESSAGE robot hi", "the role of MESSAGE must be one of"),
        ("FROM a\nTEMPLATE {{ .System }}{{ .Prompt }}", "TEMPLATE is a program of Go"),
        ("FROM a\nRUN rm", "unknown instruction 'RUN'"),
    ],
)
def test_errors_of_a_modelfile_name_the_line(text, problem):
    with pytest.raises(ConfigError) as error:
        parse_modelfile(text)
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_an_entry_of_the_catalogue(home):
    (home / "tiny.gguf").write_bytes(b"GGUF")
    create_model("team/pirate:latest", catalogue_record(parse_modelfile(TEXT), home))
    config = load_config()
    entry = look_up("team/pirate", config)
    assert entry.model == str(home / "tiny.gguf")
    merged = load_config(model=entry.options)
    assert (merged.n_ctx, merged.sampling["temperature"], merged.chat_template) == (256, 0.5, "chatml")
    assert merged.backend_options("cpu")["threads"] == 2
    chat = chat_defaults("team/pirate", config)
    assert (chat.max_tokens, chat.stop, len(chat.messages)) == (7, ["AI assistant:", "<end>"], 2)
    create_model("captain", catalogue_record(parse_modelfile("FROM team/pirate\nSYSTEM Aye."), home))
    heir = chat_defaults("captain")
    assert (heir.system, heir.max_tokens) == ("Aye.", 7)
    assert created_models() == ["captain", "team/pirate"]
    assert remove_created("captain")
    assert not remove_created("captain")
    for name in ("", "a\nb", "x.gguf", "a" * 90):
        with pytest.raises(ConfigError):
            create_model(name, {"model": "captain"})
    with pytest.raises(ConfigError, match="refers to itself"):
        create_model("loop", {"model": "loop"})


def test_commands(home, model, run):
    (home / "Modelfile").write_text(
        f"FROM {model}\nPARAMETER num_predict 3\nPARAMETER temperature 0\nPARAMETER stop @@\nSYSTEM Be kind.\n"
    )
    made = run("create", "kind")
    assert made.returncode == 0, made.stderr
    assert "kind" in run("list").stdout
    told = run("run", "kind", "Once", "--backend", "numpy")
    assert told.stdout == run("run", model, "-p", "Once", "-n", "3", "--temp", "0", "--backend", "numpy").stdout != ""
    assert "note: kind has a system message or messages; `run` applies none, `pumice chat kind` does" in told.stderr
    (home / "-x.gguf").symlink_to(DEMOS["pumice-demo"])
    noted = run("run", "-n", "1", "-p", "Once", "--backend", "numpy", "--", "-x.gguf")
    assert "note: -x.gguf has a chat template; `run` applies none, `pumice chat ./-x.gguf` does" in noted.stderr
    said = run("chat", "kind", "--backend", "numpy", input="Hi")
    assert run("chat", "kind", "Hi", "--backend", "numpy", input="").stdout == said.stdout
    same = run("chat", model, "--backend", "numpy", "-n", "3", "--temp", "0", "-s", "Be kind.", input="Hi")
    assert said.stdout == same.stdout != ""
    assert run("rm", "-y", "kind").returncode == 0
    assert "kind" not in run("list").stdout
    (home / "Modelfile").write_text("FROM a\nBAKE x\n")
    assert run("create", "bread").stderr.startswith("error: Modelfile:2: unknown instruction 'BAKE'")
    (home / "Modelfile").write_text("FROM a\nPARAMETER top_kk 3\n")
    assert "(known: temperature, top_k, top_p, " in run("create", "bread").stderr
    assert "cannot be read" in run("create", "bread", "-f", "none").stderr
    for text, missing in (
        ("FROM none.gguf", "FROM: none.gguf"),
        ("FROM ./none", f"FROM: {home / 'none'}"),
        (f"FROM {model}\nADAPTER none.gguf", f"ADAPTER: {home / 'none.gguf'}"),
    ):
        (home / "Modelfile").write_text(text)
        assert run("create", "bread").stderr == f"error: Modelfile: {missing}: no such file\n"


@pytest.mark.parametrize("line", ["FROM /", "FROM ./tiny.gguf\nADAPTER ../secret", "FROM ./link.gguf"])
def test_a_modelfile_names_no_files_elsewhere(home, line):
    """A confined process may later read the files that an entry names."""
    (home.parent / "secret").touch()
    (home / "link.gguf").symlink_to(home.parent / "secret")
    (home / "Modelfile").write_text(line)
    result = CliRunner().invoke(command, ["spy"])
    assert "outside of its folder it names only files of weights" in str(result.exception)
    assert not created_models()
