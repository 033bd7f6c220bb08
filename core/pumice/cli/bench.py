"""``pumice bench``: tokens/s of reading a prompt and of generating, as llama-bench counts them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.options import json_option, load_model, load_options, model_argument

if TYPE_CHECKING:
    from pumice.backend import KernelTime


@click.command("bench")
@model_argument
@click.option(
    "-p", "--n-prompt", type=click.IntRange(min=0), default=512, show_default=True, help="Tokens of the prompt."
)
@click.option("-n", "--n-gen", type=click.IntRange(min=0), default=128, show_default=True, help="Tokens to generate.")
@click.option(
    "-d", "--n-depth", type=click.IntRange(min=0), default=0, show_default=True, help="Tokens in the cache before."
)
@click.option("-r", "--repetitions", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--profile", is_flag=True, help="Print each kernel's time in a test's last step, on stderr; only GPUs tell."
)
@json_option
@load_options
def command(
    model: str, n_prompt: int, n_gen: int, n_depth: int, repetitions: int, profile: bool, as_json: bool, **options: Any
) -> None:
    """Measure tokens/s of a model, by default the demo model.

    Of one prompt (pp), and of generating the most probable tokens (tg), after the tokens of --n-depth, which are
    computed first and not timed. Each test runs once to warm up, then as often as --repetitions says. 0 tokens leave
    a test out.
    """
    if not n_prompt and not n_gen:
        raise click.UsageError("nothing to measure: --n-prompt and --n-gen are both 0")
    if options["n_ctx"] is None:
        options["n_ctx"] = n_depth + max(n_prompt, n_gen, 1)
    with load_model(model, options) as loaded:
        tests = [("pp", n_prompt, loaded.bench_prompt), ("tg", n_gen, loaded.bench_generation)]
        results = []
        for name, n_tokens, seconds in tests:
            if not n_tokens:
                continue
            result: dict[str, Any] = {
                "test": f"{name}{n_tokens} @ d{n_depth}" if n_depth else f"{name}{n_tokens}",
                **measure(name, n_tokens, repetitions, partial(seconds, depth=n_depth)),
                "backend": ",".join(loaded.backends),
                "model": model,
            }
            results.append(result)
            if profile:
                click.echo(format_profile(result["test"], loaded.bench_profile()), err=True)
    click.echo(json.dumps(results, indent=2) if as_json else format_results(results))


def measure(name: str, n_tokens: int, repetitions: int, seconds: Callable[[int], float]) -> dict[str, float]:
    """Mean and sample standard deviation of tokens/s over the repetitions, after a warm-up that is not counted."""
    import statistics

    from tqdm import tqdm

    seconds(n_tokens)
    runs = tqdm(range(repetitions), desc=f"{name}{n_tokens}", leave=False, disable=None)
    speeds = [n_tokens / seconds(n_tokens) for _ in runs]
    stddev = statistics.stdev(speeds) if repetitions > 1 else 0.0
    return {"tokens_per_second": statistics.fmean(speeds), "stddev": stddev}


def format_profile(test: str, kernels: list[KernelTime]) -> str:
    """A line for each kernel: its share of the step, microseconds in all and each, how often it runs, its name."""
    total = sum(kernel.microseconds for kernel in kernels)
    if not total:
        return f"{test}: no backend of this model tells the times of its kernels"
    lines = [
        f"{kernel.microseconds / total:6.1%} {kernel.microseconds:10.1f} us = {kernel.count:4} x "
        f"{kernel.microseconds / kernel.count:8.2f} us  {kernel.name}"
        for kernel in kernels
    ]
    return "\n".join([f"{test}: {total:.1f} us in the kernels of the last step", *lines])


def format_results(results: list[dict[str, Any]]) -> str:
    """A line for each test."""
    lines = [
        f"{item['test']:<14} {item['tokens_per_second']:10.2f} ± {item['stddev']:.2f} tokens/s on {item['backend']}"
        for item in results
    ]
    return "\n".join(lines)
