"""``pumice batch --ray``: machines and drivers are taken away in its midst, and each row has one result."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import pumice
import pumice_ray
from gguf_files import tiny_llama
from pumice.process_list import RunningModel
from pumice_ray.cluster import RayCluster
from waiting import wait_until

pytestmark = pytest.mark.ray

BATCH = [sys.executable, "-m", "pumice", "batch"]
OPTIONS = ["--backend", "numpy", "--set", "kv_type=f32", "-np", "4"]
SECONDS = 120  # of a whole run
ATTEMPTS = 5  # at what is to happen in the midst of a run: all may be done while this process stands still


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("ray") / "tiny.gguf"))


def write(path: Path, n: int, **body) -> Path:
    """Rows of which every tenth is wrong."""
    url = "/v1/completions"
    bodies = [{"prompt": 5 if i % 10 == 9 else "a", "max_tokens": 60, "ignore_eos": True, **body} for i in range(n)]
    rows = [{"custom_id": f"r{i}", "method": "POST", "url": url, "body": each} for i, each in enumerate(bodies)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def check(output: Path, n: int) -> None:
    """There is one result of each row."""
    results = [json.loads(line) for line in output.read_text().splitlines()]
    assert Counter(result["custom_id"] for result in results) == {f"r{i}": 1 for i in range(n)}
    for result in results:
        wrong = int(result["custom_id"][1:]) % 10 == 9
        assert result["response"]["status_code"] == (400 if wrong else 200)


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def begin(cluster, model: str, source: Path, output: Path, *arguments: str) -> subprocess.Popen:
    where = [f"--ray={cluster.address}", "-m", model, *OPTIONS, *arguments]
    return subprocess.Popen([*BATCH, source, output, *where], stderr=subprocess.PIPE, text=True)


def wait_for(process: subprocess.Popen, output: Path, n: int) -> None:
    """Until there are so many results. A process that fails before says why."""
    wait_until(lambda: lines(output) >= n or process.poll() is not None, SECONDS)
    assert lines(output) >= n, process.stderr.read()


def test_a_machine_that_is_taken_away_loses_no_row_and_doubles_none(cluster, node, model, tmp_path):
    source = write(tmp_path / "in.jsonl", 300)
    away = node()
    for attempt in range(ATTEMPTS):
        output = tmp_path / f"out{attempt}.jsonl"
        process = begin(cluster, model, source, output, "--replicas", "2")
        try:
            wait_for(process, output, 60)
            cluster.remove_node(away, allow_graceful=False)
            n_before = lines(output)
            away = node()
            _, said = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
        assert process.returncode == 0, said
        if n_before < 300:
            break
    assert n_before < 300
    assert "300 rows, 30 of them failed" in said
    check(output, 300)


def workers() -> list[RunningModel]:
    return [each for each in RayCluster().running() if each.command == "worker"]


def test_workers_are_listed_while_they_work(cluster, model, tmp_path):
    source, output = write(tmp_path / "in.jsonl", 400), tmp_path / "out.jsonl"
    process = begin(cluster, model, source, output)
    try:
        wait_for(process, output, 1)
        found: list[RunningModel] = []
        wait_until(lambda: found.extend(workers()) or found or process.poll() is not None, SECONDS)
    finally:
        process.kill()
        process.communicate()
    (worker,) = found
    assert (worker.model, worker.backends) == (model, ["numpy"])
    assert worker.address == cluster.head_node.node_ip_address
    assert worker.memory["kv_cache"] > 0


def test_a_driver_that_is_killed_goes_on_from_where_it_was(cluster, model, tmp_path):
    source = write(tmp_path / "in.jsonl", 120)
    for attempt in range(ATTEMPTS):
        output = tmp_path / f"out{attempt}.jsonl"
        process = begin(cluster, model, source, output)
        try:
            wait_for(process, output, 20)
        finally:
            process.kill()
            process.communicate()
        n_before = lines(output)
        if n_before < 120:
            break
    assert n_before < 120
    again = begin(cluster, model, source, output)
    _, said = again.communicate(timeout=SECONDS)
    assert f"{n_before} of 120 results are in {output} already\n" in said
    assert "120 rows, 12 of them failed" in said
    check(output, 120)


def test_a_model_may_have_its_layers_on_several_machines(cluster, model, tmp_path):
    source, output = write(tmp_path / "in.jsonl", 20), tmp_path / "out.jsonl"
    process = begin(cluster, model, source, output, "--stages", "2", "--replica-cpus", "0.5", "--replica-wait", "60")
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, said
    check(output, 20)


def test_prompts_of_a_dataset_have_the_models_answers(cluster, model):
    import ray

    prompts = ["a", "b", [{"role": "user", "content": "a"}], "x" * 9999]
    greedy = {"temperature": 0, "max_tokens": 8}
    exact = {"backend": "numpy", "kv_type": "f32", "config": {"chat_template": "plain"}}
    with pumice.load(model, **exact) as here:
        expected = [here.generate(each, **greedy).text for each in prompts[:2]]
        chat = here.chat(prompts[2], **greedy).message.content
    texts = ray.data.from_items([{"id": i, "prompt": each} for i, each in enumerate(prompts) if i != 2])
    rows = sorted(pumice_ray.map_prompts(texts, model, options=exact, **greedy).take_all(), key=lambda row: row["id"])
    assert [row["text"] for row in rows] == [*expected, None]
    assert [row["text_error"] is None for row in rows] == [True, True, False]
    assert "n_ctx" in rows[2]["text_error"] or "context" in rows[2]["text_error"]
    chats = ray.data.from_items([{"turns": prompts[2]}])
    (row,) = pumice_ray.map_prompts(chats, model, column="turns", into="said", options=exact, **greedy).take_all()
    assert row["said"] == chat


def test_unavailable_resources_are_an_error_of_one_line(cluster, model, tmp_path):
    source = write(tmp_path / "in.jsonl", 1)
    for arguments, message in [
        (["--ray=127.0.0.1:1"], "no Ray cluster at 127.0.0.1:1"),
        (["--ray=model.gguf"], "'model.gguf' is not an address"),
        ([f"--ray={cluster.address}", "--replicas", "3:2"], "--replicas: expected a number, or MIN:MAX"),
        ([f"--ray={cluster.address}", "--backend", "nosuch"], "nosuch"),
    ]:
        command = [*BATCH, str(source), str(tmp_path / "out.jsonl"), "-m", model, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode in (1, 2)
        remarks = "core_worker.cc", "still running after"  # of Ray's own, and of a slow machine
        said = [line for line in done.stderr.splitlines() if not any(remark in line for remark in remarks)]
        assert len(said) == 1, done.stderr
        assert message in said[0]
