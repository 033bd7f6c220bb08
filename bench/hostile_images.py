"""Send damaged, odd and hostile image files to `pumice serve`, and report wrong answers and leaks.

    python bench/hostile_images.py [-n 1000] [--clients 2] [MODEL]

Writes JSON: answers by kind of file and status, those that are wrong, and memory, open files and threads of the
server's process before and after.
"""

import argparse
import base64
import json
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from serve_faults import held
from serve_process import serving

import pumice
from hostile_images import hostile


def ask(url: str, seed: int) -> tuple[str, int, str]:
    """Return kind, status and, of a wrong answer, its text."""
    kind, data, statuses = hostile(seed)
    image = {"url": f"data:image/png;base64,{base64.b64encode(data).decode()}"}
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": image}]}]
    body = json.dumps({"messages": messages, "max_tokens": 1}).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            status, text = response.status, ""
    except urllib.error.HTTPError as error:
        status, text = error.code, json.loads(error.read())["error"]["message"]
    wrong = status not in statuses or "\n" in text or "Traceback" in text or (text and "image" not in text)
    return kind, status, f"{kind} {seed}: {status} {text!r:.200}" if wrong else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("model", nargs="?", default=str(pumice.demo_model_path(vision=True)))
    arguments = parser.parse_args()
    with serving([arguments.model]) as (server, url), ThreadPoolExecutor(arguments.clients) as clients:
        for i in range(28):  # warm-up: fills caches before the first measurement
            ask(url, -1 - i)
        before, started = held(server.pid), time.monotonic()
        answers = list(clients.map(lambda i: ask(url, i), range(arguments.n)))
        spent = time.monotonic() - started
        counts = Counter(f"{kind} {status}" for kind, status, _ in answers)
        wrong = [text for *_, text in answers if text]
        report = {"files": arguments.n, "seconds": round(spent, 1), "answers": dict(sorted(counts.items()))}
        report |= {"wrong": len(wrong), "examples": wrong[:20], "before": before, "after": held(server.pid)}
        print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
