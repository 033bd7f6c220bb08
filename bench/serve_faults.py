"""Send thousands of valid, invalid and broken requests to `pumice serve`, and report faults and leaks.

    python bench/serve_faults.py [-n 10000] [--clients 8] [MODEL]

Writes JSON: the number of answers with a server fault, seconds of a short completion before and after, and memory,
open files and threads of the server's process before and after.
"""

import argparse
import json
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import httpx2
from serve_process import serving

import faulty_clients
from waiting import wait_until


def held(pid: int) -> dict[str, int]:
    """Return a process's bytes of memory, open files and threads."""
    status = Path(f"/proc/{pid}/status").read_text()
    memory = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024
    threads = int(re.search(r"Threads:\s+(\d+)", status)[1])
    return {"memory": memory, "files": len(list(Path(f"/proc/{pid}/fd").iterdir())), "threads": threads}


def seconds_of(url: str, n: int = 20) -> float:
    """Return the median seconds of a short completion alone."""
    spent = []
    for i in range(n):
        started = time.perf_counter()
        httpx2.post(
            f"{url}/v1/completions", json={"prompt": f"Once {i}", "max_tokens": 8}, timeout=60
        ).raise_for_status()
        spent.append(time.perf_counter() - started)
    return sorted(spent)[n // 2]


def idle(url: str) -> bool:
    """Whether the engine has nothing in hand."""
    lines = httpx2.get(f"{url}/metrics", timeout=60).text.splitlines()
    busy = ("pumice_engine_sequences_running{", "pumice_engine_sequences_waiting{")
    return all(float(line.split()[-1]) == 0 for line in lines if line.startswith(busy))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("model", nargs="?", default=None)
    arguments = parser.parse_args()
    models = [arguments.model] if arguments.model else []
    with serving(models) as (server, url), ThreadPoolExecutor(arguments.clients) as clients:
        for i in range(50):  # warm-up: fills caches before the first measurement
            faulty_clients.ask(url, -i)
        before, fast = held(server.pid), seconds_of(url)
        started = time.monotonic()
        wrong = [text for text in clients.map(lambda i: faulty_clients.ask(url, i), range(arguments.n)) if text]
        spent = time.monotonic() - started
        wait_until(lambda: idle(url))
        time.sleep(20)  # abandoned connections time out
        after, later = held(server.pid), seconds_of(url)
        report = {"requests": arguments.n, "seconds": round(spent, 1), "faults": len(wrong), "examples": wrong[:5]}
        report |= {"seconds_before": fast, "seconds_after": later, "before": before, "after": after}
        print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
