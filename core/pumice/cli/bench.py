"""``pumice bench``: speed of prompt processing and generation in tokens/s, as in llama-bench."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pumice.cli.confined import ConfinedCommand
from pumice.cli.named_models import load_model
from pumice.cli.options import json_option, load_options, model_argument
from pumice.cli.output import echo
from pumice.cli.progress import show_progress
from pumice.cli.vocabulary import option
from pumice.wording import counted_as

if TYPE_CHECKING:
    from pumice.backend import KernelTime
    from pumice.evaluate.drafts import Drafts
    from pumice.model import Model

T = TypeVar("T")

WARM_SECONDS = 1.0  # of runs before each test: an idle GPU begins at a fraction of its clock


@click.command("bench", cls=ConfinedCommand)
@model_argument
@option("-p", "--n-prompt", type=click.IntRange(0), default=512, help="Prompt length in tokens; 0 leaves the test out.")
@option(
    "-n", "--n-gen", type=click.IntRange(0), default=128, help="Number of tokens to generate; 0 leaves the test out."
)
@option(
    "-d",
    "--n-depth",
    type=click.IntRange(0),
    default=0,
    help="Number of tokens in the cache before the test; they are not timed.",
)
@option(
    "-r",
    "--repetitions",
    type=click.IntRange(1),
    default=3,
    help="Number of timed runs of each test, after a second of runs that warm up (at least one).",
)
@option(
    "-npl",
    "--n-parallel",
    "parallel",
    aliases=("--parallel",),
    metavar="N,N,...",
    callback=lambda ctx, param, value: parse_numbers(value),
    help="Numbers of sequences computed at once, each with its own prompt: the table of llama-batched-bench.",
)
@option(
    "--profile",
    is_flag=True,
    advanced=True,
    help="Write each kernel's time in the last batch of a test to standard error (GPUs only).",
)
@json_option
@load_options
def command(
    model: str,
    n_prompt: int,
    n_gen: int,
    n_depth: int,
    repetitions: int,
    parallel: list[int],
    profile: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure the speed of a model in tokens/s.

    Measures prompt processing (pp) and greedy generation (tg) after an untimed prefix of --n-depth tokens. With
    --speculate, measures generation with drafts and without in turns, for texts of several kinds. The default model is
    the demo model.
    """
    speculate = options["speculate"] or "off"
    _check_tests(n_prompt, n_gen, n_depth, parallel, speculate != "off")
    if options["n_ctx"] is None and speculate == "off":
        from pumice.engine.placement.sizing import BLOCK_SIZE

        length = n_prompt + n_gen + 2 if parallel else n_depth + max(n_prompt, n_gen, 1)
        length = -(-length // BLOCK_SIZE) * BLOCK_SIZE if parallel else length  # each sequence has whole blocks
        options["n_ctx"] = length * max(parallel, default=1)
    if parallel:
        options["config"] = {**(options["config"] or {}), "n_parallel": max(parallel)}
    with load_model(model, options) as loaded:
        _settle(loaded)
        about = {"backend": ",".join(loaded.backends), "model": model}
        if speculate != "off":
            drafts = measure_drafts(loaded, speculate, n_gen, repetitions)
            echo(json.dumps([row.result() | about for row in drafts], indent=2) if as_json else table_of(drafts))
            return
        if parallel:
            rows = measure_parallel(loaded, n_prompt, n_gen, parallel, repetitions, profile)
            results = [result | about for row in rows for result in row.results()]
            echo(json.dumps(results, indent=2) if as_json else format_parallel(rows))
            for row in rows if profile else []:
                echo(row.format_profile(), err=True)
            return
        results = []
        for name, n_tokens in (("pp", n_prompt), ("tg", n_gen)):
            if not n_tokens:
                continue
            result: dict[str, Any] = {
                "test": f"{name}{n_tokens} @ d{n_depth}" if n_depth else f"{name}{n_tokens}",
                **measure(name, n_tokens, repetitions, seconds_of(loaded, name, n_depth)),
                **about,
            }
            results.append(result)
            if profile:
                from pumice.evaluate.speed import kernel_times

                echo(format_profile(result["test"], kernel_times(loaded)), err=True)
    echo(json.dumps(results, indent=2) if as_json else format_results(results))


def _settle(model: Model) -> None:
    """Wait for kernels that are compiled beside steps, for seconds at the first start on a GPU."""
    from pumice.evaluate import speed

    with show_progress("kernels", unit="model") as show:
        show(0, 1)
        speed.settle(model)
        show(1, 1)


def _check_tests(n_prompt: int, n_gen: int, n_depth: int, parallel: Sequence[int], drafts: bool) -> None:
    """Raise UsageError for options that name nothing to measure, or contradict each other."""
    if not n_prompt and not n_gen:
        raise click.UsageError("nothing to measure: --n-prompt and --n-gen are both 0")
    if drafts and n_gen < 2:
        raise click.UsageError(f"--speculate measures generation: --n-gen must be at least 2, not {n_gen}")
    if drafts and (parallel or n_depth):
        raise click.UsageError(
            "--speculate measures single texts of --n-gen tokens: leave out --parallel and --n-depth"
        )
    if parallel and not (n_prompt and n_gen):
        raise click.UsageError("--parallel needs both --n-prompt and --n-gen")


def seconds_of(model: Model, name: str, depth: int) -> Callable[..., float]:
    """Return the function that measures a test: it takes a number of tokens and ``progress``, and returns seconds."""
    from pumice.evaluate import speed

    return partial(speed.prompt_seconds if name == "pp" else speed.generation_seconds, model, depth=depth)


def parse_numbers(text: str | None) -> list[int]:
    """Parse positive numbers such as ``"1,4,8"``."""
    try:
        numbers = [int(part) for part in text.split(",")] if text else []
    except ValueError:
        numbers = [0]
    if any(number < 1 for number in numbers):
        raise click.BadParameter(f"expected numbers of sequences, 1,4,8 for example, not {text!r}")
    return numbers


@dataclass
class ParallelRow:
    """Median times over the repetitions, for ``n_seqs`` sequences at once."""

    n_prompt: int
    n_gen: int
    n_seqs: int
    prompt_seconds: float
    generation_seconds: float
    kernels: Sequence[KernelTime] = ()  # kernel times of the last step

    @property
    def outside_kernels(self) -> float | None:
        """Share of a step in which the device waits for the host; None without kernel times."""
        if not self.kernels:
            return None
        device_seconds = sum(kernel.microseconds for kernel in self.kernels) / 1e6
        return max(0.0, 1 - device_seconds / (self.generation_seconds / self.n_gen))

    def format_profile(self) -> str:
        profile = format_profile(f"tg{self.n_gen}, {self.n_seqs} sequences", self.kernels)
        share = self.outside_kernels
        return profile if share is None else f"{profile}\n{share:6.1%} of the time of a batch outside kernels"

    def results(self) -> list[dict[str, Any]]:
        tests = [(f"pp{self.n_prompt}", self.n_prompt / self.prompt_seconds)]
        tests += [(f"tg{self.n_gen}", self.n_gen / self.generation_seconds)]
        results: list[dict[str, Any]] = [
            {"test": test, "parallel": self.n_seqs, "tokens_per_second": self.n_seqs * speed} for test, speed in tests
        ]
        if self.kernels:
            results[-1]["outside_kernels"] = self.outside_kernels
        return results


def measure_parallel(
    model: Model, n_prompt: int, n_gen: int, parallel: list[int], repetitions: int, profile: bool = False
) -> list[ParallelRow]:
    """Return a row for each number of sequences, measured after untimed runs that warm up."""
    import statistics

    from pumice.evaluate.speed import kernel_times, parallel_seconds

    rows = []
    for n_seqs in parallel:
        title = counted_as(n_seqs, "sequence")
        runs = repeated(title, repetitions, partial(parallel_seconds, model, n_prompt, n_gen, n_seqs))
        seconds = [statistics.median(times) for times in zip(*runs, strict=True)]
        kernels = kernel_times(model) if profile else []
        rows.append(ParallelRow(n_prompt, n_gen, n_seqs, seconds[0], seconds[1], kernels))
    return rows


def format_parallel(rows: list[ParallelRow]) -> str:
    """Return the table of llama-batched-bench."""
    names = ("PP", "TG", "B", "N_KV", "T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s", "T s", "S t/s")
    widths = (6, 6, 4, 6, 8, 8, 8, 8, 8, 8)
    lines = [
        "|" + "|".join(f" {name:>{width}} " for name, width in zip(names, widths, strict=True)) + "|",
        "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|",
    ]
    for row in rows:
        n_read, n_new = row.n_seqs * row.n_prompt, row.n_seqs * row.n_gen
        pp, tg = row.prompt_seconds, row.generation_seconds
        cells = [f"{n}" for n in (row.n_prompt, row.n_gen, row.n_seqs, n_read + n_new)]
        cells += [f"{pp:.3f}", f"{n_read / pp:.2f}", f"{tg:.3f}", f"{n_new / tg:.2f}"]
        cells += [f"{pp + tg:.3f}", f"{(n_read + n_new) / (pp + tg):.2f}"]
        lines.append("|" + "|".join(f" {cell:>{width}} " for cell, width in zip(cells, widths, strict=True)) + "|")
    return "\n".join(lines)


def measure_drafts(model: Model, speculate: str, n_gen: int, repetitions: int) -> list[Drafts]:
    """Return a row for each text and proposer."""
    from pumice.evaluate import drafts

    choices = drafts.choices_of(model, speculate)
    n_runs, n_done = len(drafts.prompts()) * len(choices) * (1 + repetitions), 0
    with show_progress("drafts", unit="run") as show:

        def progress() -> None:
            nonlocal n_done
            show(n_done, n_runs)
            n_done += 1

        return drafts.measure(model, choices, n_gen, repetitions, progress)


def table_of(rows: list[Drafts]) -> str:
    """Return the table of drafts: speed without and with them, and how many tokens were accepted."""
    lines = [
        f"{'text':<8} {'speculate':<16} {'without':>9} {'tokens/s':>9} {'ratio':>6} {'accepted':>9} {'drafted':>8}"
    ]
    for row in rows:
        item = row.result()
        share = f"{row.accepted / row.drafted:9.0%}" if row.drafted else f"{'-':>9}"
        lines.append(
            f"{row.text:<8} {row.proposers:<16} {item['tokens_per_second_without']:9.2f} "
            f"{item['tokens_per_second']:9.2f} {row.ratio:6.2f} {share} {row.drafted:8}"
        )
    return "\n".join(lines)


def measure(name: str, n_tokens: int, repetitions: int, seconds: Callable[..., float]) -> dict[str, float]:
    """Return mean and sample standard deviation of tokens/s over the repetitions, after untimed runs that warm up."""
    import statistics

    times = repeated(f"{name}{n_tokens}", repetitions, partial(seconds, n_tokens))
    speeds = [n_tokens / time for time in times]
    stddev = statistics.stdev(speeds) if repetitions > 1 else 0.0
    return {"tokens_per_second": statistics.fmean(speeds), "stddev": stddev}


def repeated(title: str, n: int, run: Callable[..., T]) -> list[T]:
    """Return the results of ``n`` runs after runs of ``WARM_SECONDS`` that warm up, with one progress bar over all.

    The progress bar begins again with each further run that warms up.
    """
    with show_progress(title, unit="token") as show:

        def progress(i: int, done: int, total: int) -> None:
            show(i * total + done, (1 + n) * total)

        begun = time.perf_counter()
        run(progress=partial(progress, 0))
        while time.perf_counter() - begun < WARM_SECONDS:
            run(progress=partial(progress, 0))
        return [run(progress=partial(progress, 1 + i)) for i in range(n)]


def format_profile(test: str, kernels: Sequence[KernelTime]) -> str:
    """Return a line for each kernel: share of the step, total microseconds, runs, microseconds per run, name."""
    total = sum(kernel.microseconds for kernel in kernels)
    if not total:
        return f"{test}: no backend of this model measures kernel times"
    lines = [
        f"{kernel.microseconds / total:6.1%} {kernel.microseconds:10.1f} us = {kernel.count:4} x "
        f"{kernel.microseconds / kernel.count:8.2f} us  {kernel.name}"
        for kernel in kernels
    ]
    return "\n".join([f"{test}: {total:.1f} us in the kernels of the last batch", *lines])


def format_results(results: list[dict[str, Any]]) -> str:
    """Return a line for each test."""
    lines = [
        f"{item['test']:<14} {item['tokens_per_second']:10.2f} ± {item['stddev']:.2f} tokens/s on {item['backend']}"
        for item in results
    ]
    return "\n".join(lines)
