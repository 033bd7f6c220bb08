"""The page with a server behind it whose answers are written here: what a model would say to certain words."""

import asyncio
import io
import json
import re
import threading
import wave
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from pumice.media.documents import pdf_text
from pumice_server.endpoints import conversations, static
from pumice_server.http.gate import Gate
from pumice_server.settings import Settings
from server_thread import in_thread

MARKDOWN = """\
## Reading a file line by line

A generator keeps **one line** in memory, however long the file is:

```python
def lines(path: str) -> Iterator[str]:
    \"\"\"Lines of a text file, without their ends.\"\"\"
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield line.rstrip("\\n")
```

| way | memory | when |
| --- | --- | ---: |
| `read()` | the whole file | small files |
| a generator | one line | always |

1. Open the file in a `with` block.
2. Iterate; see [the documentation](https://docs.python.org/3/).
"""

FORMULAS = r"""
The integral

$$\int_0^1 x^2\,dx$$

with \(a_1 * b_1\), $\unknown{x}$ and $\frac{1}{2}$. It costs $5 or $6.
"""

ARABIC = """\
In Arabic:

اقرأ الملف سطرا سطرا:

- افتح الملف
- ثم اقرأ `line`

```python
print("مرحبا")
```
"""

FLOWCHARTS = """\
```mermaid
flowchart TD
    A([Read the file]) --> B{Is it <b>large</b>?}
    B -->|yes| C(A line<br>at a time)
    B -- no --> D["All (at once)"]:::fast
    C & D ==> E((Done)) -.-> A
    classDef fast fill:#f00
```

```mermaid
sequenceDiagram
    A->>B: not drawn
```
"""

XSS = """\
<script>window.hacked = 1</script>
<img src=x onerror="window.hacked = 2">

[link](javascript:window.hacked=3) ![picture](https://evil.example/pixel.png)
<a href="javascript:window.hacked=4">click</a>

<iframe srcdoc="<script>parent.hacked=5</script>"></iframe>

```html"><script>window.hacked=6</script>
<script>window.hacked = 7</script>
```

| <b onmouseover=window.hacked=8>x</b> | &lt;script&gt; |
| --- | --- |
| <style>body{display:none}</style> | <svg onload=window.hacked=9> |
"""

SHOWN = """\
```html
<p id="said">waits</p>
<script>
  let found = [];
  try { found.push(parent.document.title) } catch { found.push("no page") }
  try { found.push(localStorage.length) } catch { found.push("no storage") }
  fetch("/v1/models").then(() => "network", () => "no network").then((text) => {
    document.getElementById("said").textContent = [...found, text].join(", ");
  });
</script>
```

```css
.a:hover { color: #fff !important }
```
"""

CALL = {"index": 0, "id": "call_1", "type": "function"}
WEATHER = {"name": "get_weather", "arguments": '{"city": "Reykjavík", "days": 2}'}


class Scripted(NamedTuple):
    url: str
    requests: list[dict[str, Any]]  # bodies of the chats that were asked for
    left: threading.Event  # set when a client left before the end of an answer
    called: list[dict[str, Any]]  # calls of tools that the server ran


def pieces(text: str, name: str = "content") -> list[dict[str, Any]]:
    return [{name: word} for word in re.findall(r"\s*\S+\s*?", text)]


def answer_to(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The deltas of the answer."""
    said = messages[-1]["content"]
    if isinstance(said, list):
        kinds = [part["type"] for part in said]
        return pieces(f"You sent: {' '.join(kinds)}")
    if messages[-1]["role"] == "tool":
        return pieces(f"The tool says: {said}")
    if messages[-1]["role"] == "assistant":
        return pieces(" and goes on.")
    if "markdown" in said or "Python" in said:
        return pieces("The request is about files.\nA generator is best.", "reasoning_content") + pieces(MARKDOWN)
    if "formula" in said:
        return pieces(FORMULAS)
    if "far left" in said:
        return pieces(r"Behind $\hspace{-8em}x$ nothing.")
    if "Arabic" in said:
        return pieces(ARABIC)
    if "flowchart" in said:
        return pieces(FLOWCHARTS)
    if "draw" in said:
        return pieces(SHOWN)
    if "attack" in said:
        return pieces(XSS)
    if "weather" in said:
        return [{"tool_calls": [{**CALL, "function": WEATHER}]}]
    if "levels" in said:  # a paragraph, then a quotation in a quotation in ...
        return pieces("&toString; above\n\n" + ">" * 3000 + " & ends")
    if said.startswith(("add", "hang", "constructor")):
        function = {"name": said.split()[0], "arguments": '{"a": 2, "b": 3}'}
        return [{"tool_calls": [{**CALL, "function": function}]}]
    if "slow" in said:
        return [{"content": f"word{i} "} for i in range(2000)]  # more than anybody waits for
    return pieces(f"You said: {said}")


async def chat(request: Request) -> Response:
    body = await request.json()
    request.app.state.requests.append(body)
    said = body["messages"][-1]["content"]
    if "refuse" in said and body["messages"][-1]["role"] == "user":
        return JSONResponse({"error": {"message": "this prompt is too long", "code": 400}}, 400)
    deltas = answer_to(body["messages"])
    delay = 0.05 if "slow" in said else 0.0
    return StreamingResponse(events(request.app, deltas, delay, "break" in said), media_type="text/event-stream")


async def events(app: Starlette, deltas: list[dict[str, Any]], delay: float, breaks: bool) -> AsyncIterator[str]:
    def event(delta: dict[str, Any] | None, finish: str | None = None, **others: Any) -> str:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        return f"data: {json.dumps({'model': 'pumice-8b', 'choices': choices, **others})}\n\n"

    try:
        yield event({"role": "assistant", "content": None})
        for number, delta in enumerate(deltas):
            if breaks and number == 2:
                yield f"data: {json.dumps({'error': {'message': 'the engine ended', 'code': 500}})}\n\n"
                return
            yield event(delta)
            await asyncio.sleep(delay)
        yield event({}, "tool_calls" if "tool_calls" in deltas[0] else "stop")
        usage = {"prompt_tokens": 24, "completion_tokens": len(deltas), "prompt_tokens_details": {"cached_tokens": 8}}
        yield event(None, usage=usage, timings={"predicted_per_second": 41.7})
        yield "data: [DONE]\n\n"
    except asyncio.CancelledError:
        app.state.left.set()
        raise


def models(_: Request) -> Response:
    data = [
        {"id": name, "object": "model", "status": {"value": status}, "meta": {"n_ctx": 8192, "size": size}}
        for name, status, size in (("pumice-8b", "loaded", 5 << 30), ("pumice-1b", "unloaded", 1 << 30))
    ]
    listed = [{"name": "pumice-8b", "capabilities": ["completion", "vision", "video", "audio"]}]
    return JSONResponse({"object": "list", "data": data, "models": listed})


ADD = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}
HANG = {**ADD, "name": "hang"}
CONSTRUCTOR = {**ADD, "name": "constructor"}  # which every object of JavaScript has


def list_tools(_: Request) -> Response:
    tools = [{"type": "function", "function": function} for function in (ADD, HANG, CONSTRUCTOR)]
    return JSONResponse(
        [
            {"tool": each["function"]["name"], "display_name": each["function"]["name"], "definition": each}
            for each in tools
        ]
    )


async def call_tool(request: Request) -> Response:
    body = await request.json()
    if body["tool"] == "hang":
        await asyncio.sleep(3600)
    request.app.state.called.append(body)
    return JSONResponse({"plain_text_response": str(sum(body["params"].values()))})


async def extract_text(request: Request) -> Response:
    read = await asyncio.to_thread(pdf_text, (await request.json())["pdf"])
    return JSONResponse(read._asdict())


async def transcribe(request: Request) -> Response:
    """Say in which format a sound came."""
    form = await request.form()
    with wave.open(io.BytesIO(await form["file"].read())) as sound:
        is_loud = any(sound.readframes(sound.getnframes()))
        shape = f"{sound.getframerate()} Hz, {sound.getnchannels()} channel, {8 * sound.getsampwidth()} bits"
    return JSONResponse({"text": f" {form['model']} heard {shape}, {'loud' if is_loud else 'silent'}."})


def props(request: Request) -> Response:
    kept = {"conversations": "server" if request.app.state.settings.conversations else "browser", "tools": True}
    return JSONResponse({"default_generation_settings": {"params": {"temperature": 0.7}}, "ui_settings": kept})


def application(settings: Settings) -> Starlette:
    routes = [
        Route("/", static.index),
        Route("/v1/models", models),
        Route("/props", props),
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/tools", list_tools),
        Route("/tools", call_tool, methods=["POST"]),
        Route("/extract-text", extract_text, methods=["POST"]),
        Route("/v1/audio/transcriptions", transcribe, methods=["POST"]),
        Mount("/page", static.PageFiles()),
    ]
    if settings.conversations:
        routes += conversations.routes(settings.conversations)
    made = Starlette(routes=routes, middleware=[Middleware(Gate, settings=settings, count=lambda *_: None)])
    made.state.settings = settings
    made.state.models = SimpleNamespace(settings=settings, entries=[])
    made.state.requests, made.state.called = [], []
    made.state.left = threading.Event()
    return made


@contextmanager
def scripted(conversations: Path | None = None, keys: tuple[str, ...] = ()) -> Iterator[Scripted]:
    app = application(Settings(conversations=conversations, keys=keys))
    config = uvicorn.Config(app, http="h11", lifespan="off", log_config=None, ws="none")
    with in_thread(config, waits=False) as url:
        yield Scripted(url, app.state.requests, app.state.left, app.state.called)
