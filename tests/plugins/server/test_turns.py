"""Requests that arrive at once begin one after the other, so that the first does not wait for the others' steps."""

import asyncio
import subprocess
import sys

import pytest

from pumice_server.http.connections import RequestTurns


async def begin(turns: RequestTurns, number: int, log: list[tuple[str, int]]) -> None:
    await turns.take()
    log.append(("begun", number))
    await asyncio.sleep(0)  # a step of the event loop, such as reading the body
    await asyncio.sleep(0)
    log.append(("sent", number))


def test_the_first_of_many_requests_is_sent_before_the_others_begin():
    async def run() -> list[tuple[str, int]]:
        turns, log = RequestTurns(), list[tuple[str, int]]()
        await asyncio.gather(*(begin(turns, number, log) for number in range(20)))
        return log

    log = asyncio.run(run())
    assert [number for step, number in log if step == "begun"] == list(range(20))
    assert log.index(("sent", 0)) < log.index(("begun", 4))
    assert log.index(("sent", 10)) < log.index(("begun", 14))


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's table of files")
def test_connections_find_room_in_the_table_of_files():
    """The table grows before threads share it, since each of its later growths stops them."""
    code = """
import re
from pathlib import Path
from pumice_server.command.serving import expect_files

def room():
    return int(re.search(r"FDSize:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])

expect_files(1000)
expect_files(10**5)
print(room())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 1000
