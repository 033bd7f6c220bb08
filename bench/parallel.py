"""Concurrent sequences: ``pumice bench --parallel`` and llama-batched-bench, for compare_llama_cpp.py."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Speeds = dict[tuple[str, int], float]
"""Total tokens/s of all sequences, by pp or tg and the number of sequences."""


class ParallelError(Exception):
    """An error that is reported in one line."""


@dataclass(frozen=True)
class Parallel:
    """Parameters of both engines: each of many sequences gets a prompt, then all generate concurrently."""

    n_prompt: int
    n_gen: int
    n_seqs: list[int]
    n_threads: int
    n_gpu_layers: int
    backend: str | None
    program: str  # path of llama-batched-bench

    @property
    def n_ctx(self) -> int:
        return max(self.n_seqs) * (self.n_prompt + self.n_gen + 1)

    @property
    def runners(self) -> dict[str, Callable[[Path], Speeds]]:
        return {"pumice": self._pumice, "llama.cpp": self._llama_cpp}

    def _pumice(self, model: Path) -> Speeds:
        command = [
            sys.executable,
            "-c",
            "from pumice.cli import main; main()",
            "bench",
            str(model),
            "--json",
            "-r",
            "1",
        ]
        command += ["-p", str(self.n_prompt), "-n", str(self.n_gen), "--parallel", ",".join(map(str, self.n_seqs))]
        command += ["-t", str(self.n_threads), "-ngl", str(self.n_gpu_layers), "--kv-type", "f16"]
        command += ["--set", "sampling.temperature=0", *(["--backend", self.backend] if self.backend else [])]
        return {(row["test"][:2], row["parallel"]): row["tokens_per_second"] for row in json.loads(_output(command))}

    def _llama_cpp(self, model: Path) -> Speeds:
        program = shutil.which(self.program)
        if program is None:
            raise ParallelError(f"{self.program} not found; build llama.cpp and pass its path with --batched-bench")
        command = [program, "-m", str(model), "-c", str(self.n_ctx), "--output-format", "jsonl"]
        command += ["-npp", str(self.n_prompt), "-ntg", str(self.n_gen), "-npl", ",".join(map(str, self.n_seqs))]
        command += ["-t", str(self.n_threads), "-ngl", str(max(self.n_gpu_layers, 0) or 999)]
        folder = str(Path(program).resolve().parent)  # its libraries are in the same folder
        environment = {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, [folder, os.environ.get("LD_LIBRARY_PATH")]))}
        rows: list[dict[str, Any]] = [
            json.loads(line) for line in _output(command, environment).splitlines() if line.startswith("{")
        ]
        return {(kind, row["pl"]): row[f"speed_{kind}"] for row in rows for kind in ("pp", "tg")}


def _output(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(environment or {})})
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise ParallelError(f"{Path(command[0]).name} exited with status {done.returncode}: {last}")
    return done.stdout
