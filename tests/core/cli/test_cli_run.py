import logging
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from unittest import mock

import click
import pytest

import pumice
from gguf_files import tiny_llama
from pumice.cli.run import command as run_command
from vision_files import picture, write_projector
from waiting import PATIENCE

ENDLESS = ["-c", "100000", "-n", "100000", "--ignore-eos", "--temp", "1.5"]


def test_text_goes_to_stdout_and_timings_to_stderr(run, model):
    done = run("run", model, "-p", "ab", "-n", "6", "--temp", "0", "--backend", "numpy")
    with pumice.load(model, backend="numpy") as loaded:
        assert done.stdout == loaded.generate("ab", max_tokens=6, temperature=0).text
        n_prompt = len(loaded.tokenizer.tokenize("ab"))
    assert re.fullmatch(
        rf"load [\d.]+ s on numpy · prompt {n_prompt} tokens, [\d.]+ tokens/s · generation 6 tokens, [\d.]+ tokens/s\n",
        done.stderr,
    )


def test_cached_tokens_are_told(run, model, home):
    options = ("-n", "2", "--backend", "numpy", "--set", f"cache_disk={home / 'prompts'}")
    first, second = (run("run", model, "-p", "ab " * 30, *options).stderr for _ in range(2))
    assert "cached" not in first
    assert re.search(r"prompt \d+ tokens, \d+ of them cached, [\d.]+ tokens/s", second)


def test_the_prompt_comes_from_an_argument_a_pipe_or_a_file(run, model, home):
    (home / "prompt.txt").write_bytes("añb\r\n".encode())
    options = ["-n", "4", "--temp", "0"]
    given = run("run", model, "-p", "añb", *options).stdout
    assert given
    assert run("run", model, *options, input="añb\n").stdout == given
    assert run("run", model, "-p", "-", *options, input="añb").stdout == given
    assert run("run", model, "-f", "prompt.txt", *options).stdout == given
    assert run("run", model, "-p", "xyz", *options).stdout != given


def test_images_are_lists_with_commas_or_paths_that_have_commas(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.png", "b.png", "c,d.png", "a.png,c"):
        Path(name).touch()

    def images(*values):
        line = [argument for value in values for argument in ("--image", value)]
        return list(map(str, run_command.make_context("run", line).params["images"]))

    assert images("a.png,b.png", "c,d.png") == ["a.png", "b.png", "c,d.png"]
    assert images('"c,d.png",a.png') == ["c,d.png", "a.png"]
    assert images("a.png,c") == ["a.png,c"]
    with pytest.raises(click.BadParameter, match=r"'missing\.png'"):
        images("missing.png")
    for value, missing in (("a.png,x.png", "x.png"), ("a.png,", ""), (",", ""), ("a\n,b.png", "a\n")):
        with pytest.raises(click.BadParameter) as error:
            images(value)
        assert f"no file is named {value!r}, and none {missing!r}, as one of a list" in str(error.value)


def test_images_are_before_the_prompt_or_at_its_marks(run, home):
    pillow = pytest.importorskip("PIL.Image")
    model = tiny_llama(home / "tiny.gguf")
    write_projector(home / "mmproj.gguf", "mlp")
    pillow.fromarray(picture(50, 30)).save(home / "a.png")
    options = ["-n", "4", "--temp", "0", "--backend", "numpy", "--image", "a.png"]
    with pumice.load(model, backend="numpy") as loaded:
        image = pumice.Image(picture(50, 30))
        for prompt, parts in {"ab": [image, "ab"], "a<__media__>b": ["a", image, "b"]}.items():
            done = run("run", str(model), "-p", prompt, *options)
            assert done.stdout == loaded.generate(parts, max_tokens=4, temperature=0).text, done.stderr
    done = run("run", str(model), "-p", "<__media__><__media__>", *options)
    assert done.returncode == 2
    assert "2 marks <__media__> for 1 --image" in done.stderr


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        (["--seed", "5", "--top-k", "2"], {"seed": 5, "top_k": 2}),
        (["--seed", "5", "--top-p", "0.2", "--temp", "3"], {"seed": 5, "top_p": 0.2, "temperature": 3.0}),
        (["--temp", "0", "--set", "sampling.repeat_penalty=9"], {"temperature": 0.0, "repeat_penalty": 9.0}),
    ],
)
def test_options_are_the_parameters_of_generate(run, model, options, parameters):
    with pumice.load(model) as loaded:
        expected = loaded.generate("ab", max_tokens=20, **parameters).text
    assert run("run", model, "-p", "ab", "-n", "20", *options).stdout == expected


@pytest.mark.parametrize(
    ("arguments", "status", "error"),
    [
        (["run", "MODEL", "once", "x"], 2, r"error: Got unexpected extra argument \(x\); put a text .*"),
        (["run", "MODEL", "-p", "a", "-f", "b"], 2, r"error: give either a prompt or --file .*"),
        (["run", "MODEL", "a", "-p", "b"], 2, r"error: two prompts: one as TEXT and one with -p; .*"),
        (["run", "MODEL", "a", "--reasoning", "off"], 2, r"error: --reasoning is an option of chats; `run` .*"),
        (["run", "MODEL", "a", "--chat-template-kwargs={}"], 2, r"error: --chat-template-kwargs is an option of .*"),
        (["run", "MODEL", "-p", "a", "--set", "a=["], 2, r"error: .*the value of 'a' is not valid YAML.*"),
        (["run", "--prompt"], 2, r"error: Option '--prompt' requires an argument \(see `pumice run --help`\)"),
        (["run", "-n", "-p", "a"], 2, r"error: option '-n' lacks its value: '-p' is another option \(see .*"),
        (["run", "--temp", "--no-kv-offload"], 2, r"error: option '--temp' lacks its value: '--no-kv-offload' is .*"),
        (["info", "--graph", "--json"], 2, r"error: give either --graph or --json .*"),
        (["bench", "MODEL", "-p", "0", "-n", "0"], 2, r"error: nothing to measure: .*"),
        (["run", "nowhere.gguf", "-p", "a"], 1, r"error: .*nowhere.gguf.*"),
        (["run", f"./{'x' * 300}.gguf", "-p", "a"], 1, r"error: x+.gguf: file name too long"),
        (["run", "MODEL", "-f", "nowhere.txt"], 1, r"error: nowhere.txt: cannot be read: .*"),
        (["run", "MODEL", "-p", "a", "--backend", "cuda"], 1, r"error: unknown backend 'cuda'; did you mean 'vul.*"),
        (["run", "MODEL", "-p", "a b " * 999, "-c", "64"], 1, r"error: the prompt has .*, -c is 64: .* or raise -c"),
        (["run", "MODEL", "-p", "a", "-mm", "/nowhere.gguf"], 1, "error: -mm: /nowhere.gguf: no such file"),
        (["run", "MODEL", "-p", "a", "-md", "/nowhere.gguf"], 1, "error: -md: /nowhere.gguf: no such file"),
        (["run", "MODEL", "-p", "a", "--lora", "/nowhere.gguf"], 1, "error: --lora: /nowhere.gguf: no such file"),
        (["run", "MODEL", "-p", "a", "-mv", "/"], 1, "error: -mv: /: expected a GGUF file, but this is a directory"),
        (["run", "MODEL", "-p", "a", "--device", "x9"], 1, r"error: --device: unknown GPU backend 'x'; .*"),
        (["run", "MODEL", "-p", "a", "-r", ""], 1, r"error: -r: a text is empty, .*; leave it out"),
        (["run", "MODEL", "a", "--set", "n_threads=2"], 1, r"error: .*n_threads.; threads belong .*cpu.threads"),
        (["serve", "MODEL", "-np", "0"], 2, r"error: Invalid value for '-np': 0 sequences serve nothing; give 1 .*"),
    ],
)
def test_every_failure_is_one_line_on_stderr(run, model, arguments, status, error):
    done = run(*(model if argument == "MODEL" else argument for argument in arguments))
    assert done.stdout == ""
    assert re.fullmatch(error + "\n", done.stderr)
    assert done.returncode == status


@pytest.mark.parametrize(
    ("command", "redirection", "error"),
    [
        ("run -n 2 --backend numpy", "> /dev/full", "cannot write to standard output: no space left on device"),
        ("--help", "> /dev/full", "cannot write to standard output: no space left on device"),
        ("info", ">&-", "standard output is closed"),
    ],
)
def test_output_that_cannot_be_written_is_one_line(home, command, redirection, error):
    line = f'"{sys.executable}" -m pumice {command} {redirection}'
    done = subprocess.run(line, shell=True, capture_output=True, text=True, input="")
    assert (done.returncode, done.stderr) == (1, f"error: {error}\n")


def test_an_error_of_the_system_without_a_file_is_not_told_of_the_output(run, monkeypatch):
    def fork(*_):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("pumice.cli.run.read_prompt", fork)
    done = run("run", "-p", "a")
    assert done.stderr == "error: resource temporarily unavailable; set PUMICE_DEBUG=1 to see where\n"


def test_a_closed_standard_input_is_empty(home):
    pumice = f'"{sys.executable}" -m pumice'
    done = subprocess.run(f"{pumice} run -n 2 --backend numpy <&-", shell=True, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout
    assert "error" not in done.stderr
    done = subprocess.run(f"{pumice} chat <&-", shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no message: give one with -p TEXT")


def test_log_records_and_warnings_are_one_line_each(run, monkeypatch):
    def read_prompt(*_):
        logging.getLogger("pumice.engine").warning("two\nlines of %s", "log")
        logging.getLogger("pumice").info("unimportant")
        warnings.warn("careful", stacklevel=1)
        sys.exit(0)

    warnings.simplefilter("always")
    monkeypatch.setattr("pumice.cli.run.read_prompt", read_prompt)
    assert run("run", "model.gguf").stderr == "warning: two lines of log\nwarning: careful\n"
    told = run("run", "model.gguf", "-v").stderr
    assert told == "warning: two lines of log\ninfo: unimportant\nwarning: careful\n"


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (KeyError("x"), "error: internal error: KeyError: 'x'; set PUMICE_DEBUG=1 for the traceback\n"),
        (MemoryError(), "error: out of memory; try a smaller model, --ctx-size or --batch-size\n"),
    ],
)
def test_an_unexpected_exception_is_one_line_unless_debugging(run, monkeypatch, raised, error):
    monkeypatch.setattr("pumice.cli.run.read_prompt", mock.Mock(side_effect=raised))
    assert run("run", "model.gguf")[0::2] == (1, error)
    monkeypatch.setenv("PUMICE_DEBUG", "1")
    with pytest.raises(type(raised)):
        run("run", "model.gguf")


@pytest.fixture
def endless(home, model):
    """A generation that would take long; it has written its first character."""
    command = [sys.executable, "-m", "pumice", "run", model, "-p", "ab", *ENDLESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout.read(1)
        yield process
        process.kill()


def test_interrupting_ends_with_timings_and_status_130(endless):
    endless.send_signal(signal.SIGINT)
    _, stderr = endless.communicate(timeout=PATIENCE)
    assert endless.returncode == 130
    warning, _, timings = stderr.decode().partition("\n")
    assert "the model was trained for 256 positions" in warning
    drafts = r"(, \d+ of \d+ drafted tokens right)?"  # of a text that went far before the signal came
    assert re.fullmatch(rf"load .* generation \d+ tokens?(, [\d.]+ tokens/s)?{drafts}\n", timings)


def test_a_closed_pipe_ends_it_quietly(endless):
    endless.stdout.close()
    (warning,) = endless.stderr.read().splitlines()  # of the context, and no more
    assert b"trained for 256 positions" in warning
    assert endless.wait(timeout=PATIENCE) == -signal.SIGPIPE


def test_structured_output(run, tmp_path):
    assert run("run", "-p", "Is it?", "--regex", "yes|no").stdout in ("yes", "no")
    (tmp_path / "form.gbnf").write_text('root ::= "maybe" | "never"')
    assert run("run", "-p", "Is it?", "--grammar", f"@{tmp_path}/form.gbnf").stdout in ("maybe", "never")
    assert run("run", "-p", "Is it?", "-j", '{"enum": [true]}').stdout == "true"
    assert "missing.json: No such file" in run("run", "-p", "x", "-j", "@missing.json").stderr
    assert run("run", "-p", "x", "-j", "{").stderr.startswith("error: -j: not valid JSON")
    assert run("run", "-p", "Is it?", "--grammar-file", f"{tmp_path}/form.gbnf").stdout in ("maybe", "never")
    (tmp_path / "form.json").write_text('{"enum": [true]}')
    assert run("run", "-p", "Is it?", "-jf", f"{tmp_path}/form.json").stdout == "true"
    assert "cannot read the JSON schema: missing.json: No such" in run("run", "-p", "x", "-jf", "missing.json").stderr
    done = run("run", "-p", "x", "--grammar-file", "a", "--regex", "b")
    assert (done.returncode, done.stderr.partition(" (")[0]) == (2, "error: give only one of --grammar-file, --regex")
