"""Each row of the pages "Coming from ...": Python, requests and commands run; a command that would stay is parsed."""

import ast
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import pumice
from pumice.cli import cli
from server_thread import running

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("from_*.md"))
RUN = ("info", "fit", "list", "ps", "run", "bench", "tokenize", "embed", "quantize", "create", "perplexity")
"""Commands that end by themselves; the others are parsed."""
MESSAGES = [{"role": "user", "content": "Once"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
BODY: dict[str, Any] = {
    "model": "demo",
    "messages": MESSAGES,
    "prompt": "Once",
    "content": "Once",
    "input": "Once",
    "tokens": [1, 2],
    "max_tokens": 4,
    "n_predict": 4,
    "stream": False,
    "options": {"num_predict": 4},
}


def cells(page: Path) -> list[tuple[list[str], list[str]]]:
    """Return the code on the left and on the right of each row."""
    rows = re.findall(r"^\| (.+) \| (`.+) \|$", page.read_text(), re.MULTILINE)
    return [
        tuple([code.replace(r"\|", "|") for code in re.findall(r"`([^`]+)`", cell)] for cell in row) for row in rows
    ]


ROWS = [(page.stem, left, code) for page in PAGES for left, right in cells(page) for code in right]
COMMANDS = [(name, code) for name, _, code in ROWS if code.startswith("pumice ")]
REQUESTS = [(name, code) for name, _, code in ROWS if re.match(r"(GET|POST) /", code)]
PYTHON = [row for row in ROWS if not row[2].startswith(("pumice ", "GET ", "POST "))]


@pytest.fixture
def here(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the demo model and the files that the pages name."""
    monkeypatch.chdir(tmp_path)
    for name in ("model.gguf", "draft.gguf", "a-00001-of-00002.gguf"):
        shutil.copy(pumice.demo_model_path(), name)
    Path("Modelfile").write_text("FROM ./model.gguf\nSYSTEM You are a pirate.\n")
    Path("text.txt").write_text("Once upon a time there was a little dog. " * 30)
    for name in ("keys.txt", "t.jinja"):
        Path(name).write_text("key")
    Path("mcp.json").write_text('{"mcpServers": {}}')
    return tmp_path


def test_every_page_has_its_rows():
    names = ("llama_cpp_python", "llama_server", "lm_studio", "ollama")
    assert [page.stem for page in PAGES] == [f"from_{name}" for name in names]
    assert min(len(COMMANDS), len(REQUESTS), len(PYTHON)) > 20


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_a_command_of_a_page(here, page, line):
    name, *words = shlex.split(line)[1:]
    if name in RUN and "hf.co" not in line:
        done = CliRunner().invoke(cli, [name, *words])
        assert done.exit_code == 0, done.output
        return
    parent = click.Context(cli, info_name="pumice")
    command = cli.get_command(parent, name)
    while isinstance(command, click.Group):
        name, *words = words
        command = command.get_command(parent, name)
    assert command is not None
    command.make_context(name, words, parent=parent)


@pytest.fixture(scope="module")
def model():
    with pumice.load(n_ctx=512, chat_template="plain") as model:
        yield model


def test_each_request_of_the_pages():
    with pumice.load(n_ctx=512, chat_template="plain") as model, running(model, metrics=True) as server:
        for page, request in sorted(REQUESTS, key=lambda row: "unload" in row[1]):
            method, path = request.split()
            body = {"input": "Once"} if path == "/v1/responses" else BODY
            response = server.client.request(method, path, json=body if method == "POST" else None)
            assert response.status_code == 200, (page, request, response.text)


@pytest.mark.parametrize(("page", "there", "code"), PYTHON)
def test_python_of_a_page(here, model, page, there, code):
    for left in there:
        ast.parse(left)
    names = {"pumice": pumice, "model": model, "messages": MESSAGES, "schema": SCHEMA}
    names |= {"function": lambda ids, logits: logits, "criteria": lambda ids, logits: len(ids) > 4}
    names["state"] = model.cache.state("Once") if "state" in code else b""
    if code == "model.close()":
        names["model"] = pumice.load()
    value = eval(re.sub(r"hf\.co/[^\"]+", "model.gguf", code), names)
    if isinstance(value, pumice.Model):
        value.close()
    elif hasattr(value, "completion"):
        assert value.completion()
    elif code != "model.close()":
        assert value is not None
