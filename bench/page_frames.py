"""Main-thread time per frame of the page while an answer streams into a long conversation.

A frame has 16.7 ms at 60 frames/s. The time is what chromium's main thread worked (scripts, styles, layout, painting),
so that other programs of the machine disturb it little; the picture itself is made by other threads.
"""

import argparse
import json
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import itertools

import uvicorn
from playwright.sync_api import sync_playwright
from starlette.responses import StreamingResponse
from starlette.routing import Route

import scripted_server
from pumice_server.settings import Settings

TEXT = "Some **bold** words and `code` in a sentence that is as long as others are.\n\n"
FRAMES = """() => new Promise((done) => {
    const times = [];
    const step = (time) => {
        times.push(time);
        if (document.querySelector('.answer[aria-busy="true"]') || times.length < 30) requestAnimationFrame(step);
        else done(times);
    };
    requestAnimationFrame(step);
})"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--messages", type=int, default=500)
    parser.add_argument("-r", "--rate", type=float, default=200.0, help="tokens/s")
    parser.add_argument("-s", "--seconds", type=float, default=10.0)
    arguments = parser.parse_args()

    def stream(_: object) -> StreamingResponse:
        def parts() -> Iterator[str]:
            words, begin = TEXT.split(" "), time.monotonic()
            for number in range(int(arguments.rate * arguments.seconds)):
                delta = {"content": words[number % len(words)] + " "}
                yield f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta, 'finish_reason': None}]})}\n\n"
                time.sleep(max(0.0, begin + (number + 1) / arguments.rate - time.monotonic()))
            end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
            yield f"data: {json.dumps(end)}\n\ndata: [DONE]\n\n"

        return StreamingResponse(parts(), media_type="text/event-stream")

    application = scripted_server.application(Settings())
    application.router.routes.insert(0, Route("/v1/chat/completions", stream, methods=["POST"]))
    server = uvicorn.Server(uvicorn.Config(application, lifespan="off", log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as own:
        threading.Thread(target=server.run, kwargs={"sockets": [own]}, daemon=True).start()
        measure(f"http://127.0.0.1:{own.getsockname()[1]}", arguments.messages)
        server.should_exit = True


def measure(url: str, n_messages: int) -> None:
    request = {"messages": [{"role": ("user", "assistant")[i % 2], "content": TEXT * 3} for i in range(n_messages)]}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(120_000)
        page.goto(url)
        file = {"name": "long.json", "mimeType": "application/json", "buffer": json.dumps(request).encode()}
        page.get_by_label("File of conversations").set_input_files(file)
        page.locator("article").nth(n_messages - 1).wait_for(state="attached")
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable")
        page.get_by_label("Message", exact=True).fill("Go")
        page.keyboard.press("Enter")
        page.wait_for_selector('.answer[aria-busy="true"]')
        before, begin = counters(devtools), time.monotonic()
        times = page.evaluate(FRAMES)
        after, seconds = counters(devtools), time.monotonic() - begin
        gaps = sorted(b - a for a, b in itertools.pairwise(times))
        print(f"{n_messages} messages, {len(times)} frames in {seconds:.1f} s")
        for name in ("TaskDuration", "ScriptDuration", "LayoutDuration", "RecalcStyleDuration"):
            print(f"{name:20} {1000 * (after[name] - before[name]) / len(times):6.2f} ms per frame")
        print(f"between frames: median {gaps[len(gaps) // 2]:.1f} ms, 95 % {gaps[int(len(gaps) * 0.95)]:.1f} ms")
        median, low = 1000 / gaps[len(gaps) // 2], 1000 / gaps[int(len(gaps) * 0.95)]
        print(f"frames/s: median {median:.1f}, 5th percentile {low:.1f}")
        browser.close()


def counters(devtools: object) -> dict[str, float]:
    metrics = devtools.send("Performance.getMetrics")["metrics"]  # type: ignore[attr-defined]
    return {metric["name"]: metric["value"] for metric in metrics}


if __name__ == "__main__":
    main()
