"""Send damaged, odd and hostile files to `pumice serve`, for hostile_images.py and hostile_sounds.py."""

import argparse
import json
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from serve_faults import held


def arguments_of(description: str, model: str) -> argparse.Namespace:
    """Return the arguments of the command; ``model`` is used if none is named."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("-n", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("model", nargs="?", default=model)
    return parser.parse_args()


def ask(url: str, file: tuple[str, bytes, Collection[int]], part: dict[str, Any], noun: str) -> tuple[str, int, str]:
    """Send a chat with ``part``, and return kind, status and, of a wrong answer, its text; errors name ``noun``."""
    kind, _, statuses = file
    body = json.dumps({"messages": [{"role": "user", "content": [part]}], "max_tokens": 1}).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            status, text = response.status, ""
    except urllib.error.HTTPError as error:
        status, text = error.code, json.loads(error.read())["error"]["message"]
    wrong = status not in statuses or "\n" in text or "Traceback" in text or (text and noun not in text)
    return kind, status, f"{kind} {text!r:.200}" if wrong else ""


def report(send: Callable[[int], tuple[str, int, str]], pid: int, n: int, n_clients: int, n_warm_up: int) -> None:
    """Send the files of ``n`` seeds by ``n_clients`` threads, and print what the server ``pid`` did as JSON."""
    for i in range(n_warm_up):  # fills caches before the first measurement
        send(-1 - i)
    with ThreadPoolExecutor(n_clients) as clients:
        before, started = held(pid), time.monotonic()
        answers = list(clients.map(send, range(n)))
        spent = time.monotonic() - started
    counts = Counter(f"{kind} {status}" for kind, status, _ in answers)
    wrong = [f"{seed}: {text}" for seed, (*_, text) in enumerate(answers) if text]
    values = {"files": n, "seconds": round(spent, 1), "answers": dict(sorted(counts.items()))}
    values |= {"wrong": len(wrong), "examples": wrong[:20], "before": before, "after": held(pid)}
    print(json.dumps(values, indent=1))
