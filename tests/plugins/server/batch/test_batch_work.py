"""Rows in flight: how many, in which order they come back, and what happens when the engine dies."""

import asyncio
import os
import signal
import sys
from functools import partial

import click
import pytest

from gguf_files import tiny_llama
from pumice.plugin.unstable import BatchRow, ModelSpec
from pumice_server.batch.answering import Answering
from pumice_server.batch.results import Results
from pumice_server.batch.work import answer_all
from pumice_server.command.serving import load_process
from waiting import PATIENCE

ROWS = [BatchRow(f"r{i}", "/v1/completions", {"prompt": "a", "max_tokens": 40, "ignore_eos": True}) for i in range(24)]


def result(row: BatchRow, status: int = 200) -> dict:
    return {"id": "x", "custom_id": row.custom_id, "response": {"status_code": status, "body": {}}, "error": None}


def test_so_many_are_in_flight_and_results_come_as_they_end():
    running = most = 0
    found: list[dict] = []

    async def answer(row: BatchRow) -> dict:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        while row.custom_id == "r0" and len(found) < len(ROWS) - 1:
            await asyncio.sleep(0.001)
        running -= 1
        return result(row)

    async def run() -> None:
        async for each in answer_all(iter(ROWS), answer, 5):
            found.append(each)

    asyncio.run(asyncio.wait_for(run(), PATIENCE))
    assert most == 5
    assert found[-1]["custom_id"] == "r0"
    assert sorted(each["custom_id"] for each in found) == sorted(row.custom_id for row in ROWS)


def test_a_row_that_kills_the_engine_takes_no_other_with_it():
    running: set[str] = set()

    async def answer(row: BatchRow) -> dict:
        running.add(row.custom_id)
        await asyncio.sleep(0.001)
        status = 503 if "r7" in running else 200
        running.discard(row.custom_id)
        return result(row, status)

    async def collect() -> list[dict]:
        return [each async for each in answer_all(iter(ROWS), answer, 8)]

    found = [(each["custom_id"], each["response"]["status_code"]) for each in asyncio.run(collect())]
    assert sorted(found) == sorted((row.custom_id, 503 if row.custom_id == "r7" else 200) for row in ROWS)


def test_an_engine_that_is_killed_is_started_again_and_every_row_is_answered(tmp_path):
    path = tiny_llama(tmp_path / "tiny.gguf")
    spec = ModelSpec(["tiny"], str(path), {"backend": "numpy", "kv_type": "f32", "n_parallel": 4})

    async def run() -> list[dict]:
        found = []
        async with Answering(spec, partial(load_process, command="batch")) as answering:
            async for each in answer_all(iter(ROWS), answering.answer, 8):
                found.append(each)
                if len(found) == 5:
                    service = answering._models.served_models[0].service
                    os.kill(service.model.engine.link.pid, signal.SIGKILL)
        return found

    found = [(each["custom_id"], each["response"]["status_code"]) for each in asyncio.run(run())]
    assert sorted(found) == sorted((row.custom_id, 200) for row in ROWS)


def test_one_process_writes_a_file_and_a_row_is_written_once(tmp_path):
    path, ids = tmp_path / "out.jsonl", {row.custom_id for row in ROWS}
    with Results(path, None, ids) as results:
        results.add(result(ROWS[0]))
        results.add(result(ROWS[0], 503))
        with pytest.raises(click.ClickException, match=r"out\.jsonl is being written by another process"):
            Results(path, None, ids).__enter__()
    with Results(path, None, ids) as again:
        assert again.done == {"r0"}
    assert path.read_text().count("\n") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="limits of file sizes")
def test_a_full_disk_is_an_error_of_the_file(tmp_path):
    """The buffered line is written again when the file is closed, and fails again."""
    import resource

    def write() -> None:
        with Results(tmp_path / "out.jsonl", None, ["r0"]) as results:
            resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))
            results.add(result(ROWS[0]))

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with pytest.raises(click.ClickException, match=r"cannot write .*out\.jsonl: "):
            write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
