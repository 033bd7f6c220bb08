"""One engine with one model in a process of its own: the child of compare_llama_cpp.py.

    python engine_process.py {pumice|llama.cpp|memory} '{"path": "model.gguf", "n_ctx": 4096, "n_batch": 512, ...}'

Uses JSON lines: first describes the loaded model, then answers each request on standard input with the seconds it took.
Between requests it blocks in a read. Its interpreter may have only one of the two engines, so each is imported only
when it is selected.
"""

import json
import os
import random
import signal
import sys
import threading
import time
from typing import Any

FIRST_PROMPT = [1, 2, 3, 4]


class Pumice:
    """Pumice through its Python interface."""

    def __init__(self, settings: dict[str, Any]) -> None:
        try:
            import pumice
            from pumice import load  # imported separately, since pumice imports lazily
            from pumice.evaluate import speed
        except ImportError as error:
            raise ImportError(
                f"{error}: run `{sys.executable} -m pip install .` in the folder of Pumice's sources"
            ) from None
        keys = ("path", "backend", "n_ctx", "n_batch", "n_gpu_layers")
        self._speed = speed
        started = time.perf_counter()
        self._model = load(**{key: settings[key] for key in keys}, kv_type="f16", n_parallel=1)
        self.load_seconds = time.perf_counter() - started
        self.about = f"Pumice {pumice.__version__} on {'+'.join(self._model.backends)}"

    def pp(self, n_tokens: int, depth: int) -> float:
        return self._speed.prompt_seconds(self._model, n_tokens, depth)

    def tg(self, n_tokens: int, depth: int) -> float:
        return self._speed.generation_seconds(self._model, n_tokens, depth)

    def first_token(self) -> float:
        started = time.perf_counter()
        self._model.generate(FIRST_PROMPT, max_tokens=1, temperature=0.0)
        return time.perf_counter() - started


class LlamaCpp:
    """llama.cpp through its C interface, driven like its own llama-bench; unset options have its defaults."""

    def __init__(self, settings: dict[str, Any]) -> None:
        try:
            import llama_cpp
        except ImportError:
            raise ImportError(
                f"llama_cpp is not installed for {sys.executable}: "
                f"run `{sys.executable} -m pip install llama-cpp-python`, or select a Python that has it with --python"
            ) from None
        self._api: Any = llama_cpp
        self._errors: list[str] = []
        self._log = llama_cpp.llama_log_callback(self._keep_errors)  # referenced as long as the library may log
        llama_cpp.llama_log_set(self._log, None)
        started = time.perf_counter()
        self._load(settings)
        self.load_seconds = time.perf_counter() - started
        gpu = llama_cpp.llama_supports_gpu_offload() and settings["n_gpu_layers"] != 0
        self.about = f"llama.cpp (llama-cpp-python {llama_cpp.__version__}) on {'gpu' if gpu else 'cpu'}"

    def pp(self, n_tokens: int, depth: int) -> float:
        return self._seconds(n_tokens, depth, self._n_batch)

    def tg(self, n_tokens: int, depth: int) -> float:
        return self._seconds(n_tokens, depth, 1)

    def first_token(self) -> float:
        import numpy as np

        started = time.perf_counter()
        self._decode(FIRST_PROMPT, self._n_batch)
        np.ctypeslib.as_array(self._api.llama_get_logits_ith(self._context, -1), (self._n_vocab,)).argmax()
        return time.perf_counter() - started

    def _load(self, settings: dict[str, Any]) -> None:
        api = self._api
        api.llama_backend_init()
        model_params = api.llama_model_default_params()
        model_params.n_gpu_layers = settings["n_gpu_layers"]
        model = api.llama_model_load_from_file(settings["path"].encode(), model_params)
        if not model:
            raise RuntimeError(f"llama.cpp cannot load {settings['path']}: {self._first_error()}")
        params = api.llama_context_default_params()
        params.n_ctx = settings["n_ctx"]
        params.n_batch = params.n_ubatch = self._n_batch = settings["n_batch"]
        params.n_threads = params.n_threads_batch = settings["n_threads"]
        self._context = api.llama_init_from_model(model, params)
        if not self._context:
            raise RuntimeError(f"llama.cpp cannot make a context for {settings['path']}: {self._first_error()}")
        self._n_vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))

    def _seconds(self, n_tokens: int, depth: int, n_batch: int) -> float:
        ids = random.Random(0).choices(range(self._n_vocab), k=depth + n_tokens)
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), False)
        self._decode(ids[:depth], self._n_batch)
        started = time.perf_counter()
        self._decode(ids[depth:], n_batch)
        return time.perf_counter() - started

    def _decode(self, ids: list[int], n_batch: int) -> None:
        api = self._api
        for first in range(0, len(ids), n_batch):
            part = ids[first : first + n_batch]
            tokens = (api.llama_token * len(part))(*part)
            status = api.llama_decode(self._context, api.llama_batch_get_one(tokens, len(part)))
            if status:
                raise RuntimeError(f"llama_decode failed with status {status}: {self._first_error()}")
            api.llama_synchronize(self._context)

    def _keep_errors(self, level: int, text: bytes, _: Any) -> None:
        if level == 4:  # GGML_LOG_LEVEL_ERROR
            self._errors.append(text.decode(errors="replace").strip())

    def _first_error(self) -> str:
        return self._errors[0] if self._errors else "no error was logged"


class MemoryRate:
    """Memory bandwidth, the bound of both engines: reads memory as fast as all threads together can."""

    N_BYTES = 1 << 30

    def __init__(self, settings: dict[str, Any]) -> None:
        import numpy as np

        self._parts = np.array_split(np.ones(self.N_BYTES // 8, np.int64), settings["n_threads"])
        self.about, self.load_seconds = "memory", 0.0

    def read(self) -> float:
        threads = [threading.Thread(target=self._read_part, args=(part,)) for part in self._parts]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - started

    @staticmethod
    def _read_part(part: Any) -> None:
        for first in range(0, len(part), 1 << 17):
            part[first : first + (1 << 17)].sum()


ENGINES: dict[str, Any] = {"pumice": Pumice, "llama.cpp": LlamaCpp, "memory": MemoryRate}


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # an engine's output must not mix with the replies
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it, too, and ends this process

    def reply(**values: Any) -> None:
        print(json.dumps(values), file=replies, flush=True)

    settings = json.loads(sys.argv[2])
    use_cores(settings["n_threads"])
    try:
        engine = ENGINES[sys.argv[1]](settings)
        reply(about=engine.about, load_seconds=engine.load_seconds)
        idle_since = time.process_time()
        for line in sys.stdin:
            idle_cpu_seconds = time.process_time() - idle_since
            request = json.loads(line)
            settle_seconds = request.pop("settle_seconds")
            seconds = getattr(engine, request.pop("test"))(**request)
            time.sleep(settle_seconds)  # lets spinning threads go idle
            idle_since = time.process_time()
            reply(seconds=seconds, idle_cpu_seconds=idle_cpu_seconds, peak_bytes=peak_bytes())
    except Exception as error:
        reply(error=str(error) or type(error).__name__)


def use_cores(n_threads: int) -> None:
    """Restrict the process to the first ``n_threads`` cores, where the system supports it (Linux)."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:n_threads])


def peak_bytes() -> int | None:
    """Return the peak resident memory including mapped file pages: VmHWM (Linux), elsewhere None."""
    try:
        with open("/proc/self/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        return int(fields["VmHWM"].split()[0]) * 1024
    except (OSError, KeyError):
        return None


if __name__ == "__main__":
    main()
