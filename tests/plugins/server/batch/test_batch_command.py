"""``pumice batch`` as a process: its results, and that every kill leaves a file from which it goes on."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

import pumice
from imported_late import Late
from mcp_servers import raw_server
from pumice_server.batch.command import command
from sandboxes import needs_sandbox
from waiting import wait_until

openai = Late("openai")

BATCH = [sys.executable, "-m", "pumice", "batch"]
SECONDS = 120  # of a whole run


def write(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(custom_id: str, url: str = "/v1/completions", **body) -> dict:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": {"model": "demo", **body}}


def stories(n: int, **body) -> list[dict]:
    """Rows of which every eighth is wrong."""
    return [row(f"r{i}", prompt=5 if i % 8 == 7 else f"Once upon {i}", **body) for i in range(n)]


def batch(*arguments: object) -> subprocess.CompletedProcess:
    """Run the command, without the lines of standard error that a busy machine adds."""
    done = subprocess.run([*BATCH, *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS, check=False)
    done.stderr = "".join(line for line in done.stderr.splitlines(keepends=True) if "still loading after" not in line)
    return done


def refused(*arguments: object) -> str:
    """Return the message of a command that does nothing."""
    done = CliRunner().invoke(command, [*map(str, arguments)])
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    return done.stderr


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def statuses(path: Path) -> dict[str, int]:
    """The status of each row's result; each row has one."""
    results = read(path)
    assert set(Counter(result["custom_id"] for result in results).values()) <= {1}
    return {result["custom_id"]: result["response"]["status_code"] for result in results}


@pytest.fixture(scope="module")
def model():
    with pumice.load(config={"chat_template": "plain"}) as model:
        yield model


def test_results_are_those_of_the_model_in_openais_format(model, tmp_path):
    chat, vector, greedy = "/v1/chat/completions", "/v1/embeddings", {"temperature": 0, "max_tokens": 12}
    rows = [
        row("story", prompt="Once upon a time", **greedy),
        row("chat", chat, messages=[{"role": "user", "content": "Once"}], **greedy),
        row("vector", vector, input="a cat"),
        row("wrong", chat, messages=[]),
    ]
    output, errors = tmp_path / "out.jsonl", tmp_path / "errors.jsonl"
    done = batch(write(tmp_path / "in.jsonl", rows), output, "--errors", errors)
    assert done.returncode == 0
    assert done.stderr.startswith("4 rows, 1 of them failed; ")
    results = {result["custom_id"]: result for result in read(output)}
    bodies = {name: result["response"]["body"] for name, result in results.items()}
    assert bodies["story"]["choices"][0]["text"] == model.generate("Once upon a time", **greedy).text
    answer = openai.types.chat.ChatCompletion.model_validate(bodies["chat"]).choices[0].message.content
    assert answer == model.chat(rows[1]["body"]["messages"], **greedy).message.content
    found = openai.types.CreateEmbeddingResponse.model_validate(bodies["vector"]).data[0].embedding
    assert found == pytest.approx(model.embed(["a cat"])[0].tolist(), abs=1e-5)
    assert read(errors) == [results["wrong"]]
    assert results["wrong"]["response"]["status_code"] == 400
    assert "messages must be a list of 1" in bodies["wrong"]["error"]["message"]
    assert all(result["response"]["request_id"] and result["error"] is None for result in results.values())


def killed_twice(source: Path, output: Path, errors: Path) -> bytes:
    """Return the complete results after two kills, some rows after each start."""
    whole = b""
    for _ in range(2):
        process = subprocess.Popen([*BATCH, source, output, "--errors", errors, "-np", "4"], stderr=subprocess.PIPE)
        n_enough = whole.count(b"\n") + 4
        wait_until(lambda: process.poll() is not None or lines(output) >= n_enough, SECONDS)  # noqa: B023
        process.kill()
        process.communicate()
        whole = output.read_bytes()[: output.read_bytes().rfind(b"\n") + 1]
        with output.open("ab") as file:
            file.write(b'{"id":"batch_req_1","custom_id":"r1')  # the beginning of a line
        with errors.open("ab") as file:
            file.write(b'{"id"')
    return whole


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_killed_again_and_again_it_gives_one_result_a_row(tmp_path):
    source = write(tmp_path / "in.jsonl", stories(24, max_tokens=40))
    for attempt in range(5):  # where this process stands still, all rows may be done before a kill
        output, errors = tmp_path / f"out{attempt}.jsonl", tmp_path / f"errors{attempt}.jsonl"
        before = killed_twice(source, output, errors)
        n_before = before.count(b"\n")
        if n_before < 24:
            break
    assert n_before < 24
    done = batch(source, output, "--errors", errors)
    assert done.stderr.startswith(f"{n_before} of 24 results are in {output} already\n24 rows, 3 of them failed; ")
    assert output.read_bytes().startswith(before)
    expected = {f"r{i}": 400 if i % 8 == 7 else 200 for i in range(24)}
    assert statuses(output) == expected
    assert statuses(errors) == {name: status for name, status in expected.items() if status == 400}
    whole = output.read_bytes()
    assert batch(source, output).stderr.startswith("24 of 24 results")
    assert output.read_bytes() == whole


@needs_sandbox
def test_its_process_is_confined(tmp_path):
    source = write(tmp_path / "in.jsonl", stories(40, max_tokens=60))
    with subprocess.Popen([*BATCH, source, tmp_path / "out.jsonl"], stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: lines(tmp_path / "out.jsonl") > 0)
        state = Path(f"/proc/{process.pid}/status").read_text()
        process.kill()
    assert re.search(r"^Seccomp:\s*2$", state, re.MULTILINE)


def test_parquet_goes_in_and_out_and_is_whole_or_not_there(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = stories(16, max_tokens=2)
    source, output = tmp_path / "in.parquet", tmp_path / "out.parquet"
    for each in rows:
        each["body"] = json.dumps(each["body"])
    parquet.write_table(pyarrow.Table.from_pylist(rows), source)
    half = write(tmp_path / "half.jsonl", stories(8, max_tokens=2))
    assert batch(half, output).returncode == 0
    assert parquet.read_table(output).num_rows == 8
    assert batch(source, output).stderr.startswith("8 of 16 results are in")
    found = parquet.read_table(output).to_pylist()
    told = {each["custom_id"]: json.loads(each["response"])["status_code"] for each in found}
    assert told == {f"r{i}": 400 if i % 8 == 7 else 200 for i in range(16)}
    assert len(found) == 16
    assert sorted(path.name for path in tmp_path.iterdir()) == ["half.jsonl", "in.parquet", "out.parquet"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"url": "/v1/completions", "body": {}}], "in.jsonl:1: custom_id must be a text"),
        ([row("a", "/v1/files")], "in.jsonl:1: url must be one of /v1/chat"),
        ([{**row("a"), "method": "GET"}], "in.jsonl:1: method must be POST"),
        ([{**row("a"), "body": []}], "in.jsonl:1: body must be an object"),
        ([row("a", prompt="x"), row("b", stream=True)], "in.jsonl:2: stream must be false"),
        ([row("a", prompt="x"), row("a", prompt="y")], "in.jsonl:2: row 1 has the custom_id 'a' already"),
        ([5], "in.jsonl:1: expected an object with custom_id"),
    ],
)
def test_wrong_rows_are_told_before_anything_is_computed(rows, message, tmp_path):
    assert message in refused(write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_results_and_failures_are_different_files(tmp_path):
    """Otherwise the list of failures would replace the results."""
    source = write(tmp_path / "in.jsonl", [row("a", prompt=5)])
    output, linked = tmp_path / "out.jsonl", tmp_path / "linked.jsonl"
    linked.symlink_to(output)
    for target, errors in ((output, output), (output, linked), (output, source), (source, output)):
        assert "are the same file" in refused(source, target, "--errors", errors)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "linked.jsonl"]
    (tmp_path / "loop").symlink_to("loop")
    assert "loop: Too many levels of symbolic links" in refused(tmp_path / "loop", output)


def test_files_of_others_stay_as_they_are(tmp_path):
    source = write(tmp_path / "in.jsonl", [row("a", prompt="x", max_tokens=1)])
    for text, message in [
        ("a letter", "out.jsonl:1: not a result of a batch"),
        ("a letter\n", "out.jsonl:1: not a result of a batch"),
        ('{"custom_id": "z", "response": null}\n', "out.jsonl:1: this is the result of 'z', which is not in the input"),
        (source.read_text(), "not a result of a batch"),
    ]:
        target = tmp_path / "out.jsonl"
        target.write_text(text)
        for arguments in ([source, target], [source, tmp_path / "other.jsonl", "--errors", target]):
            assert message in refused(*arguments)
            assert target.read_text() == text
    assert "there is no folder" in refused(source, tmp_path / "nowhere" / "out.jsonl")
    assert "cannot read" in refused(tmp_path / "nothing.jsonl", target)
    for arguments in ([source, "/dev/null"], ["/dev/null", target], [source, target, "--errors", "/dev/null"]):
        assert "/dev/null: not a regular file" in refused(*arguments)


def test_rows_run_tools_of_mcp_servers(tmp_path):
    """The demo model calls no tool, so that this proves the list, and that the servers start outside the sandbox."""
    pytest.importorskip("mcp")
    servers = tmp_path / "servers.json"
    servers.write_text(json.dumps({"mcpServers": {"raw": raw_server(tmp_path / "raw", ["echo"])}}))
    tools = [{"type": "mcp", "server_label": "raw"}]
    rows = [row("a", "/v1/responses", input="Once", max_output_tokens=4, tools=tools)]
    output = tmp_path / "out.jsonl"
    options = ["--mcp-config", servers, "--ctx-size", 2048]
    done = batch(write(tmp_path / "in.jsonl", rows), output, "--allow-tools", "raw:echo", *options)
    assert done.returncode == 0, done.stderr
    items = read(output)[0]["response"]["body"]["output"]
    assert [tool["name"] for tool in items[0]["tools"]] == ["echo"]
    assert "there is no MCP server 'other'" in wrong_use("--allow-tools", "other", "--mcp-config", servers)
    assert "--allow-tools, which names the servers" in wrong_use("--mcp-config", servers)
    assert "no MCP servers are configured: give --mcp-config, or write" in wrong_use("--allow-tools", "other")


def wrong_use(*arguments: object) -> str:
    """Return the message of the command about wrong options."""
    done = CliRunner().invoke(command, ["in.jsonl", "out.jsonl", *map(str, arguments)])
    assert done.exit_code == 2
    return done.stderr
