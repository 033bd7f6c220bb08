"""``pumice imatrix``: how much each column of a model's matrices counts, measured on a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.options import force_option, load_model, load_options, model_argument
from pumice.cli.perplexity import bos_of, estimate_line, last, running_line, text_ids
from pumice.cli.run import read_prompt

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pumice.imatrix import ActivationSums
    from pumice.model import Model
    from pumice.perplexity import Estimate


@click.command("imatrix")
@model_argument
@click.option("-f", "--file", type=click.Path(path_type=Path), help="The text.")
@click.option("-o", "--output", "out", default="imatrix.gguf", type=click.Path(path_type=Path), show_default=True)
@click.option("--output-format", type=click.Choice(["gguf", "dat"]), help="If not given, what the name says.")
@click.option("--process-output", is_flag=True, help="Also what goes into the output matrix.")
@click.option("--from-chunk", "--chunk", type=click.IntRange(min=0), default=0, help="Leave out so many chunks.")
@click.option("--chunks", type=click.IntRange(min=1), help="Read only so many chunks.")
@click.option("--parse-special", is_flag=True, help="Read <|im_end|> and the like in the text as tokens.")
@click.option("--in-file", "in_files", multiple=True, metavar="FILE,...", help="Add what other runs have measured.")
@click.option("--output-frequency", type=click.IntRange(min=1), default=10, help="Save after every so many chunks.")
@click.option("--save-frequency", type=click.IntRange(min=0), default=0, help="Keep a copy after every so many chunks.")
@click.option("--show-statistics", is_flag=True, help="Say what is in the one --in-file.")
@force_option
@load_options
def command(model: str, file: Path | None, in_files: tuple[str, ...], show_statistics: bool, **rest: Any) -> None:
    """Measure an importance matrix, for pumice quantize.

    It says which columns of MODEL's matrices count.

    The text should be like what the model is used for; some 100 chunks of --n-ctx tokens, 512 if not given, are enough.
    With --in-file what is measured is added to what is in other files; without a text those are added up.
    """
    from pumice.imatrix import ActivationSums, read_sums

    chunk_size = rest["n_ctx"] = rest["n_ctx"] or 512
    paths = [path for paths in in_files for path in paths.split(",") if path]
    if show_statistics:
        if len(paths) != 1:
            raise click.UsageError("--show-statistics needs one --in-file")
        click.echo("\n".join(statistics_lines(read_sums(paths[0], chunk_size))))
        return
    if file is None and not paths:
        raise click.UsageError("give a text with --file, or --in-file")
    sums = ActivationSums(chunk_size=chunk_size)
    for path in paths:
        sums.merge(read_sums(path, chunk_size))
    output = Output(rest.pop("out"), rest.pop("output_format"), rest.pop("force"), sums)
    frequencies = rest.pop("output_frequency"), rest.pop("save_frequency")
    if file is not None:
        text = read_prompt(None, file)
        sums.datasets.append(str(file))
        estimate = last(output.kept(measured(model, text, output, rest), *frequencies), running_line)
        click.echo(f"perplexity {estimate_line(estimate, chunk_size)}", err=True)
    output.save()
    click.echo(f"{output.path}: {len(sums.tensors)} tensors, {sums.n_chunks} chunks", err=True)
    for name, count in sums.unreached.items():
        click.echo(f"{name}: {count} of {len(sums.tensors[name].counts)} experts were never chosen", err=True)


def measured(model: str, text: str, output: Output, rest: dict[str, Any]) -> Iterator[Estimate]:
    """Read a text, adding to the sums that are put out; the estimate of its perplexity after each chunk."""
    from pumice.imatrix import Collector
    from pumice.perplexity import perplexity

    first, chunks, special = rest.pop("from_chunk"), rest.pop("chunks"), rest.pop("parse_special")
    rest["observer"] = collector = Collector(output.sums, rest.pop("process_output"))
    size = output.sums.chunk_size
    with load_model(model, rest) as loaded:
        output.check_room(collector.n_bytes)
        ids = text_ids(loaded, text, special)[first * size :]
        yield from perplexity(EveryRow(loaded), ids, size, bos=bos_of(loaded), n_chunks=chunks)


@dataclass(frozen=True)
class EveryRow:
    """A model all of whose logits are computed, so that what goes into the output matrix is seen."""

    model: Model

    def continuation_logits(
        self, beginning: Sequence[int], endings: Sequence[Sequence[int]]
    ) -> list[NDArray[np.float32]]:
        rows = (self.model.logits([*beginning, *ending])[len(beginning) - 1 : -1] for ending in endings)
        return list(rows)


class Output:
    """The file, checked before anything is measured, saved again and again."""

    def __init__(self, path: Path, format: str | None, force: bool, sums: ActivationSums) -> None:
        from pumice.gguf.output import check_output

        check_output(path, force)
        self.path = path
        self._dat = (format or path.suffix) in ("dat", ".dat")
        self.sums = sums

    def check_room(self, n_bytes: int) -> None:
        """GGUFError if the disk cannot take a file of so much."""
        from pumice.gguf.output import check_space

        check_space(self.path.resolve().parent, n_bytes)

    def save(self, path: Path | None = None) -> None:
        from pumice.imatrix import write_sums

        write_sums(path or self.path, self.sums, dat=self._dat, force=True)

    def kept(self, estimates: Iterator[Estimate], every: int, copy_every: int) -> Iterator[Estimate]:
        """Save after every so many steps, and keep copies named after how many."""
        for estimate in estimates:
            n = estimate.n_chunks
            if n % every == 0:
                self.save()
            if copy_every and n % copy_every == 0:
                self.save(self.path.with_name(f"{self.path.name}.at_{n}"))
            yield estimate


def statistics_lines(sums: ActivationSums) -> list[str]:
    """Two tables: tensors, the most active first, and layers."""
    from pumice.imatrix import layer_statistics, tensor_statistics

    tensors = tensor_statistics(sums)
    width = max((len(each.name) for each in tensors), default=6)
    lines = [
        f"{'tensor':{width}} {'sum':>12} {'min':>9} {'max':>11} {'mean':>10} {'sigma':>10} {'active':>8} {'n':>8}"
        f" {'entropy':>8} {'of max':>7} {'ZD':>7} {'cosine':>7}"
    ]
    for each in tensors:
        lines.append(
            f"{each.name:{width}} {each.total:12.2f} {each.low:9.4f} {each.high:11.4f} {each.mean:10.4f}"
            f" {each.deviation:10.4f} {each.active:8.2%} {each.n:8} {each.entropy:8.4f} {each.entropy_share:7.2%}"
            f" {each.z_density:7.2%} {each.similarity:7.4f}"
        )
    lines += ["", f"{'layer':>5} {'sum':>12} {'ZD':>7} {'cosine':>7}"]
    for layer in layer_statistics(tensors):
        lines.append(f"{layer.layer:5} {layer.total:12.2f} {layer.z_density:7.2%} {layer.similarity:7.4f}")
    return lines
