"""The process that fuzzes one target, with atheris (coverage-guided) or with the plain mutator."""

import argparse
import ast
import logging
import math
import os
import re
import resource
import sys
from contextlib import nullcontext
from pathlib import Path
from time import monotonic

from fuzz.lines import Lines
from fuzz.mutate import mutations
from fuzz.targets import Target, load
from fuzz.trial import Record, Trial, keep

MEMORY = 4 << 30  # bytes
TARGETS = Path(__file__).with_name("targets")
WARM_UP = 10  # seeds
LIMIT = 600  # seconds per input in libFuzzer; the parent process checks earlier


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("folder", type=Path, help="folder of the grown corpus and the record")
    parser.add_argument("--slot", type=int, default=0, help="number of the record")
    parser.add_argument("--finds", type=Path, required=True)
    parser.add_argument("--engine", choices=("atheris", "plain"), required=True)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # warnings about missing parts of files
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    if arguments.engine == "atheris":
        import atheris

        instrumented = atheris.instrument_imports(include=_instrumented(arguments.target))
    else:
        instrumented = nullcontext()
    with instrumented:
        target = load(arguments.target)
        record = Record(arguments.folder / f"record-{arguments.slot}")
        trial = Trial(target, record, arguments.finds, lambda text: print(text, flush=True))
        seeds = list(target.seeds())
        for seed in (b"", *seeds[:: 1 + len(seeds) // WARM_UP]):  # triggers lazy imports of the target
            trial(seed)
    run = _run_atheris if arguments.engine == "atheris" else _run_plain
    run(target, trial, arguments)


def _run_plain(target: Target, trial: Trial, arguments: argparse.Namespace) -> None:
    """Mutate the seeds and the grown corpus, to which inputs are added that reach a line for the first time."""
    corpus = arguments.folder / "corpus"
    corpus.mkdir(exist_ok=True)
    inputs = [*target.seeds(), *(path.read_bytes() for path in sorted(corpus.iterdir()))]
    n_known = len(inputs)
    lines = Lines()
    reached = 0
    end = monotonic() + arguments.seconds if arguments.seconds else math.inf
    for number, data in enumerate(mutations(inputs, target.tokens, target.max_len, arguments.seed)):
        trial(data)
        if lines.reached != reached:
            reached = lines.reached
            if number >= n_known:
                keep(corpus, "line", data)
                inputs.append(data)
        if number + 1 == arguments.runs or monotonic() > end:
            break
    if reached:
        print(f"lines: {reached}", flush=True)


def _run_atheris(target: Target, trial: Trial, arguments: argparse.Namespace) -> None:
    import atheris

    corpus = arguments.folder / "corpus"
    corpus.mkdir(exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number:03}").write_bytes(seed[: target.max_len])
    dictionary = arguments.folder / "dictionary"
    dictionary.write_text("".join(f'"{_escaped(token)}"\n' for token in target.tokens))
    options = [
        f"-max_total_time={math.ceil(arguments.seconds)}", f"-runs={arguments.runs or -1}",
        f"-seed={arguments.seed or 1}", f"-max_len={target.max_len}", f"-rss_limit_mb={MEMORY >> 20}",
        f"-timeout={LIMIT}", f"-report_slow_units={LIMIT}",
        f"-artifact_prefix={arguments.finds}{os.sep}{target.name}-", "-detect_leaks=0", "-reload=0",
        *([f"-dict={dictionary}"] if target.tokens else []),  # libFuzzer refuses an empty one
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(corpus)], trial)
    atheris.Fuzz()


def _instrumented(name: str) -> list[str]:
    """Return the modules under test from a target's source, which are instrumented when it is imported."""
    tree = ast.parse((TARGETS / f"{name}.py").read_text())
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return sorted(text.rstrip(".") for text in texts if re.fullmatch(r"pumice[\w.]*", text))


def _escaped(token: bytes) -> str:
    return "".join(chr(byte) if 32 < byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in token)


if __name__ == "__main__":
    main()
