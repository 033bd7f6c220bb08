"""Compare Pumice with llama.cpp: time to encode an image of 1,024 x 1,024 pixels, and to the first token after it.

    python bench/compare_vision.py path/to/llama-server [--shape pixtral gemma3] [--type F16] [-r 5]
    python bench/compare_vision.py path/to/llama-server --backend vulkan --images 1 8

Image encoders have published shapes and random weights; the language model behind them has two layers of the shape of
Llama 3.2 1B, so that its prompt takes about as long as the encoder's. Both servers have the files loaded and take
turns; each request has pictures that neither has seen. *Encoding* is what llama-server's log says of all images of a
request, and what the encoder of Pumice takes from pixels to rows, in a process of its own. *First token* is the answer
to a request for one token, from its first byte to its last, and *processor time* what the processes of the server use
for it. A row has the medians of the repetitions, the lowest and the highest, and llama.cpp's median divided by
Pumice's: more than 1 is faster than llama.cpp.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from compare_llama_cpp import available_cores, cpu_name
from engine import BenchError
from rows import ENGINES, spread
from serve import Server
from vision_shapes import SHAPES, write_projector, write_text_model

SIDE = 1024  # pixels
CONTEXT = 4608  # tokens for each image
PROMPT = "What is this?"
POLL_SECONDS = 0.02
TIME = rb"(\d+)\.(\d+)\.(\d+)\.(\d+) "
ENCODING = re.compile(TIME + rb".* encoding mtmd batch from ")
DECODING = re.compile(TIME + rb".*decoding image batch 1/")


def picture(seed: int) -> np.ndarray:
    """Return uint8 pixels of coloured squares."""
    squares = np.random.default_rng(seed).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    return squares.repeat(SIDE // 16, 0).repeat(SIDE // 16, 1)


def file_of(pixels: np.ndarray) -> str:
    """Return the PNG file of pixels in base64."""
    height, width = pixels.shape[:2]
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n"
    for kind, content in ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")):
        data += struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    return base64.b64encode(data).decode()


@dataclass
class Measured:
    """Seconds of one measurement by engine, in the order of the repetitions."""

    name: str
    samples: dict[str, list[float]] = field(default_factory=lambda: {"pumice": [], "llama.cpp": []})

    def row(self, shape: str) -> str:
        ours, theirs = self.samples["pumice"], self.samples["llama.cpp"]
        ratio = statistics.median(theirs) / statistics.median(ours)
        cells = [spread([1e3 * seconds for seconds in values]) for values in (ours, theirs)]
        return "| " + " | ".join([shape, self.name, *cells, f"{ratio:.2f}"]) + " |"


@dataclass(frozen=True)
class Answered:
    """Seconds and processor seconds of a request."""

    seconds: float
    cpu: float


def marker_of(server: Server) -> str:
    """Return the text that stands for an image in prompts of a server."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/props", timeout=60) as answer:
        return str(json.load(answer)["media_marker"])


def ask(server: Server, seeds: Sequence[int]) -> Answered:
    """Ask a server for one token after pictures."""
    prompt = {
        "prompt_string": marker_of(server) * len(seeds) + PROMPT,
        "multimodal_data": [file_of(picture(seed)) for seed in seeds],
    }
    options = {"n_predict": 1, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
    body = json.dumps({"prompt": prompt, **options}).encode()
    url = f"http://127.0.0.1:{server.port}/completion"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    began, used = time.perf_counter(), server.cpu
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            read: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        raise BenchError(f"{server.name} answered {error.code}: {error.read().decode()[:200]}") from None
    seconds = time.perf_counter() - began
    if not read.get("tokens_predicted"):
        raise BenchError(f"{server.name} answered {str(read)[:200]}")
    return Answered(seconds, server.cpu - used)


class EncodingWatch(threading.Thread):
    """Reads the log of llama-server during a request: seconds and processor seconds of encoding.

    The log's lines have times; the processor time is that of the server when a line is seen.
    """

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._log = Path(f"/tmp/bench-{server.name}.log").open("rb")  # noqa: SIM115  # for as long as the thread
        self._log.seek(0, io.SEEK_END)
        self._ended = threading.Event()
        self.times: list[float] = []
        self.cpu: list[float] = []

    def run(self) -> None:
        rest, over = b"", False
        while not over:
            over = self._ended.wait(POLL_SECONDS)
            *lines, rest = (rest + self._log.read()).split(b"\n")
            for line in lines:
                pattern = DECODING if len(self.times) % 2 else ENCODING
                if (match := pattern.match(line)) is not None:
                    minutes, seconds, thousandths, millionths = (int(part) for part in match.groups())
                    self.times.append(60 * minutes + seconds + thousandths / 1e3 + millionths / 1e6)
                    self.cpu.append(self._server.cpu)

    def answered(self) -> Answered:
        """Return what encoding took, after the end of the request."""
        self._ended.set()
        self.join()
        if not self.times or len(self.times) % 2:
            raise BenchError(f"{self._log.name} does not say how long images took to encode")
        return Answered(*(sum(values[1::2]) - sum(values[::2]) for values in (self.times, self.cpu)))


class Encoder:
    """Pumice's encoder in a process of its own, which waits between measurements.

    ``settings``: of ``pumice.load``, with the model's ``path`` and the projector's, ``mmproj``.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        command = [sys.executable, __file__, "--encoder", json.dumps(settings)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, what: str, seeds: Sequence[int]) -> Answered:
        """Encode pictures that it has not seen, or generate a token after them; ``what``: encode or generate."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps([what, *seeds]), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise BenchError(f"the encoder's process exited with status {self._process.wait()}")
        return Answered(*map(float, line.split()))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def run_encoder(settings: dict[str, Any]) -> None:
    """Encode the pictures of each line of the standard input, or generate after them, and print the seconds."""
    import pumice
    from pumice.config import load_config
    from pumice.engine.media.projector import Projector
    from pumice.registry import get_registry

    config = load_config(overrides={key: settings[key] for key in ("backend", "cpu")})
    encoder = Projector(Path(settings["mmproj"]), config, get_registry(config))
    model: pumice.Model | None = None
    for line in sys.stdin:
        what, *seeds = json.loads(line)
        pictures = [picture(seed) for seed in seeds]
        if what == "generate" and model is None:
            model = pumice.load(**settings)
        began, used = time.perf_counter(), time.process_time()
        if what == "encode":
            for pixels in pictures:
                encoder.encode(pixels)
        else:
            assert model is not None
            model.generate([*map(pumice.Image, pictures), PROMPT], max_tokens=1, temperature=0)
        print(time.perf_counter() - began, time.process_time() - used, flush=True)


class Comparison:
    """Both servers and Pumice's encoder with the files of one shape."""

    def __init__(self, stack: ExitStack, arguments: argparse.Namespace, name: str, folder: Path) -> None:
        self._arguments = arguments
        shape = replace(SHAPES[name], n_layer=arguments.layers or SHAPES[name].n_layer)
        projector = folder / f"mmproj-{name}-{shape.n_layer}-{arguments.type}.gguf"
        text = folder / f"text-{arguments.text_type}.gguf"
        if not projector.exists():
            write_projector(projector, shape, arguments.type)
        if not text.exists():
            write_text_model(text, arguments.text_type)
        self._name = f"{name}, {shape.n_layer} blocks, {arguments.type}"
        n_ctx, threads = CONTEXT * max(arguments.images), arguments.threads
        common = ["--mmproj", str(projector), "-c", str(n_ctx), "-t", str(threads), "-np", "1"]
        theirs = [arguments.server, "-m", str(text), "-lv", "4", *common, *shape.server_options]
        ours = [sys.executable, "-m", "pumice", "serve", str(text), *common, "--backend", arguments.backend]
        settings = {"path": str(text), "mmproj": str(projector), "backend": arguments.backend, "n_ctx": n_ctx}
        self._encoder = Encoder({**settings, "n_parallel": 1, "cpu": {"threads": threads}})
        stack.callback(self._encoder.close)
        self._servers = {"llama.cpp": Server("llama.cpp", [*theirs, *arguments.llama_options])}
        if not arguments.in_process:
            self._servers["pumice"] = Server("pumice", ours)
        for server in self._servers.values():
            stack.callback(server.close)
        self._seed = 0

    def rows(self, n_images: int) -> Iterator[str]:
        """Yield rows of requests with a number of images."""
        what = "an image" if n_images == 1 else f"{n_images} images"
        names = [f"encoding {what}, ms", "its processor time, ms", f"first token after {what}, ms"]
        measured = [Measured(name) for name in [*names, "its processor time, ms"]]
        for turn in range(int(self._arguments.no_warm_up), self._arguments.repetitions + 1):
            for name, seconds in self._measure(n_images, turn).items():
                if turn:
                    for one, value in zip(measured, seconds, strict=True):
                        one.samples[name].append(value)
        yield from (one.row(self._name) for one in measured)

    def _measure(self, n_images: int, turn: int) -> dict[str, list[float]]:
        """Measure each engine once, in turns, with new pictures: seconds and processor seconds of both, by engine."""
        seeds = range(self._seed, self._seed + n_images)
        self._seed += n_images
        values: dict[str, list[float]] = {}
        for name in ENGINES[:: -1 if turn % 2 else 1]:
            if name == "pumice":
                encoded = self._encoder.measure("encode", seeds)
                in_process = name not in self._servers
                answer = self._encoder.measure("generate", seeds) if in_process else ask(self._servers[name], seeds)
            else:
                watch = EncodingWatch(self._servers[name])
                watch.start()
                answer = ask(self._servers[name], seeds)
                encoded = watch.answered()
            values[name] = [encoded.seconds, encoded.cpu, answer.seconds, answer.cpu]
        return values


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", help="llama-server")
    parser.add_argument("--shape", nargs="+", choices=list(SHAPES), default=list(SHAPES), help="image encoders")
    parser.add_argument("--layers", type=int, default=0, help="blocks of the encoders (default: all)")
    parser.add_argument("--type", default="F16", help="type of the encoder's matrices (default: %(default)s)")
    parser.add_argument("--text-type", default="Q8_0", help="type of the language model's (default: %(default)s)")
    parser.add_argument("--images", nargs="+", type=int, default=[1], help="images of a request (default: 1)")
    parser.add_argument("--backend", default="cpu", help="Pumice's backend (default: %(default)s)")
    parser.add_argument(
        "--in-process", action="store_true", help="Pumice's first token in the encoder's process, from pixels"
    )
    parser.add_argument("-t", "--threads", type=int, default=available_cores(), help="default: %(default)s")
    parser.add_argument("-r", "--repetitions", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--no-warm-up", action="store_true", help="also measure the first requests")
    parser.add_argument("--folder", type=Path, help="keep the model files in FOLDER, and use those that are there")
    parser.add_argument("--llama-options", nargs=argparse.REMAINDER, default=[], help="further options of llama-server")
    return parser.parse_args()


def main() -> None:
    if sys.argv[1:2] == ["--encoder"]:
        run_encoder(json.loads(sys.argv[2]))
        return
    arguments = parse_arguments()
    print(f"{arguments.threads} threads of {cpu_name()}, backend {arguments.backend}\n")
    print("| encoder | measured: median (range) | Pumice | llama.cpp | ratio |\n| --- | --- | --- | --- | --- |")
    try:
        with ExitStack() as outer:
            folder = arguments.folder or Path(outer.enter_context(tempfile.TemporaryDirectory()))
            for name in arguments.shape:
                with ExitStack() as stack:
                    comparison = Comparison(stack, arguments, name, folder)
                    for n_images in arguments.images:
                        for row in comparison.rows(n_images):
                            print(row, flush=True)
    except BenchError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
