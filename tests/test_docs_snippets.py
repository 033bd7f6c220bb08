"""Snippets of docs/ and README.md run and can be read: commands, Python, JSON, YAML, TOML. The parts of the site."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest
import yaml

import pumice
from pumice.cli import cli
from pumice.cli.llama_options import OPTIONS
from pumice.config import SETTINGS
from pumice_server.application import operations
from server_thread import running

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted(DOCS.glob("*.md"))]

sys.path.insert(0, str(ROOT / "tools" / "site"))
import links  # noqa: E402
import reference  # noqa: E402


def blocks(page: Path, *languages: str) -> list[str]:
    found = re.findall(r"^```([\w{}-]*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [text for language, text in found if language in languages]


def commands(page: Path) -> Iterator[list[str]]:
    """Each command of Pumice that a page shows, as a shell splits it, without comments, redirections and pipes."""
    for block in blocks(page, "", "sh", "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"\s(?:\||&&)\s", line.removeprefix("$ ")):
                if re.match(r"(\w+=\S+ )*pumice( |$)", part):
                    words = shlex.split(part, comments=True)
                    words = words[[word.rpartition("/")[2] for word in words].index("pumice") + 1 :]
                    yield words[: next((i for i, word in enumerate(words) if word in (">", "<")), len(words))]


SHOWN = sorted({(page.name, shlex.join(words)) for page in PAGES for words in commands(page)})


@pytest.mark.parametrize(("page", "line"), SHOWN, ids=lambda value: value.replace("/", "_"))
def test_a_command_has_only_options_that_exist(page, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)
    context = click.Context(cli, info_name="pumice")
    command: click.Command = cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        child = command.get_command(context, words[0])
        assert child is not None
        command, words = child, words[1:]
        context = click.Context(command, parent=context, info_name=command.name)
    try:
        command.make_context(command.name, list(words))
    except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):
        pass  # help
    except click.ClickException as error:
        if not re.search("does not exist|No such file", error.message):  # as a file of the reader's does not
            raise


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_data_snippets_can_be_parsed(page):
    for text in blocks(page, "json"):
        json.loads(text)
    for text in blocks(page, "yaml"):
        keys = yaml.safe_load(text)
        assert isinstance(keys, dict)
        assert keys.keys() <= {*SETTINGS, "cpu", "numpy", "vulkan", "mlx"}
    for text in blocks(page, "toml"):
        tomllib.loads(text)
    for text in blocks(page, "python"):
        compile(text, page.name, "exec")


# --- pages that run


def run(page: str, **given: object) -> dict[str, object]:
    names: dict[str, object] = given
    for text in blocks(DOCS / page, "python"):
        exec(compile(text, page, "exec"), names)
    return names


def test_the_first_run(capsys):
    run("first_run.md")
    assert capsys.readouterr().out.strip()


def test_the_code_that_is_read(capsys):
    names = run("read_the_code.md")
    assert len(names["story"]) == 40
    assert len("".join(blocks(DOCS / "read_the_code.md", "python")).splitlines()) < 200
    assert "Once upon a time" in capsys.readouterr().out


def test_a_chat_and_its_tools(capsys, monkeypatch):
    load = pumice.load
    monkeypatch.setattr(pumice, "load", lambda _: load(n_ctx=2048))
    names = run("chat.md", __name__="chat")
    names["model"].close()
    assert capsys.readouterr().out.strip()
    assert names["messages"][-1].role == "assistant"


def test_the_search(capsys):
    names = run("embeddings.md")
    names["model"].close()
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"1.000  {names['documents'][0]}"
    assert float(second.split()[0]) < 1


def test_structured_output():
    names = run("structured_output.md")
    with names["model"] as model:
        text = model.generate("Alice is six.", json_schema=names["person"], max_tokens=60, seed=1).text
    assert text.startswith('{"name"')


def test_the_clients_and_their_commands(monkeypatch, tmp_path, capfd):
    """The page's own Python and curl, against a server with the demo model at another port."""
    with pumice.load(config={"chat_template": "plain"}) as model, running(model) as server:
        for block in blocks(DOCS / "clients.md", "python"):
            exec(compile(block.replace("http://127.0.0.1:8080", server.url), "clients.md", "exec"), {})
        assert len(capfd.readouterr().out) > 100
        for page in ("clients.md", "embeddings.md"):
            for block in blocks(DOCS / page, ""):
                if block.startswith("curl "):
                    command = block.replace("http://127.0.0.1:8080", server.url)
                    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
                    assert "error" not in json.loads(done.stdout), done


# --- the site


def test_every_page_is_in_the_navigation_once():
    linked = re.findall(r"^[-\d.]+ \[[^\]]+\]\((\w+)\.md\)", (DOCS / "index.md").read_text(), re.MULTILINE)
    assert sorted(linked) == sorted(path.stem for path in DOCS.glob("*.md") if path.stem != "index")
    filled = reference.fill("index", (DOCS / "index.md").read_text())
    listed = re.findall(r"```\{toctree\}\n(.*?)```", filled, re.DOTALL)
    assert [name for part in listed for name in part.split("\n\n")[1].split()] == linked


def test_every_generated_part_has_its_function_and_its_place():
    places = {name for page in PAGES for name in re.findall(r"<!-- generated: (\w+) -->", page.read_text())}
    assert places == reference.GENERATORS.keys()


def test_the_command_line_has_every_command_and_option():
    text = reference.commands()
    for name in cli.list_commands(click.Context(cli)):
        assert f"\n## pumice {name}\n" in f"\n{text}"
    assert "\n### pumice gguf split\n" in text
    assert "`-c, --ctx-size N`" in text


def test_the_options_of_llama_cli_that_are_done_otherwise_are_listed():
    text = reference.llama_cli_options()
    assert "| `-hff`, `--hf-file` | name the file's quantization: -m hf.co/owner/repository:Q4\\_K\\_M |" in text
    names = {name for options in OPTIONS.values() for name in (*options.refused, *options.ignored)}
    assert [name for name in names if f"`{name}`" not in text] == []
    assert "| threads of the processor | `-tb`, `--threads-batch`, `-C`, " in text


def test_every_endpoint_and_every_body_is_in_the_reference():
    text = reference.endpoints()
    paths = [path.replace(":path}", "}") for operation in operations() for path in operation.paths]
    assert [path for path in paths if f"`{path}`" not in text] == []
    fields = reference.body_fields()
    for anchor in set(re.findall(r"\(#(\w+)\)", text + fields)):
        assert re.search(f"^### {anchor}$", fields, re.MULTILINE | re.IGNORECASE), anchor
    assert "| `n` | integer, 1 to 16 | 1 | Number of answers. |" in fields


def test_the_tables_of_settings_are_whole():
    keys = set(SETTINGS) - {"plugins"}  # which has a section of its own
    assert [key for key in sorted(keys) if f"| `{key}` |" not in reference.configuration()] == []
    assert "| `min_p` | `min_p` | `float`, at least 0 and at most 1 | `0.05` |" in reference.samplers()
    row = r"\| `qwen3:8b` \| [\d.]+ \| `hf.co/Qwen/Qwen3-8B-GGUF:Q4_K_M` \| temperature 0.6"
    assert re.search(row, reference.catalogue())
    assert "| `Q8_0` | 8.50 | 1.1 |" in reference.bits()


def test_the_error_messages_are_those_of_the_sources():
    text = reference.errors()
    assert "- `give either --max-size or --max-tensors`\n" in text.partition("## Command line\n")[2]
    for name in ("RequestError", "GGUFError", "ConfigError", "Command line"):
        assert f"## {name}\n" in text
    assert len(text.splitlines()) > 400


def test_the_headings_of_troubleshooting_are_messages_of_the_sources():
    headings = re.findall(r"^### `(.+)`( \(\d+\))?$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    assert len(headings) > 7
    texts = [path.read_text() for folder in ("core", "plugins") for path in (ROOT / folder).rglob("*.py")]
    sources = re.sub(r'"\s+f?"', "", "".join(texts))
    for heading, _ in headings:
        longest = max(re.split(r"…|'", heading), key=len).strip(" :()")
        kind = longest.removeprefix("unknown ")  # `unknown_name` makes some of these messages
        assert longest.split(", n_ctx")[0] in sources or f'"{kind}"' in sources, heading


def test_the_interfaces_are_whole():
    python = reference.python()
    assert [name for name in pumice.__all__ if name != "__version__" and f"pumice.{name}\n" not in python] == []
    contract = reference.plugin_contract()
    for name in ("Architecture", "Sampler", "Tokenizer", "ChatFormat"):
        assert f"pumice.plugin.{name}\n" in contract
    assert "pumice.plugin.unstable.Backend\n" in reference.unstable_contract()
    assert "| `linear` |" in reference.operations()


def test_links_out_of_the_pages(tmp_path):
    text = "[the demo](../tools/demo_model/README.md#how) and [ops](../core), [here](python.md), ![p](../a.png)"
    page = DOCS / "x.md"
    plain = links.outside(text, page, ROOT, "", "main")
    assert plain == "the demo and ops, [here](python.md), ![p](../a.png)"
    known = links.outside(text, page, ROOT, "me/pumice", "v1")
    assert "(https://github.com/me/pumice/blob/v1/tools/demo_model/README.md)" in known
    assert "(https://github.com/me/pumice/tree/v1/core)" in known
    with pytest.raises(ValueError, match="broken link"):
        links.outside("[x](../no/such.md)", page, ROOT, "", "main")


def test_numbers_of_the_page_on_choosing():
    """The key/value cache of the table follows from the shapes in it."""
    page = (DOCS / "choosing_a_model.md").read_text()
    rows = re.findall(r"\| (\d+) × (\d+) × (\d+) \| (\d+) KiB \| (\d+) MiB \|", page)
    assert len(rows) == 4
    for layers, heads, size, per_token, of_4096 in np.array(rows, int):
        assert 2 * layers * heads * size * 2 == per_token * 1024
        assert per_token * 4096 == of_4096 * 1024
