"""Measurements of both engines as rows of a table, for compare_llama_cpp.py."""

import statistics
from dataclasses import asdict, dataclass
from typing import Any

ENGINES = ("pumice", "llama.cpp")


@dataclass(frozen=True)
class Row:
    """All repetitions of one measurement by engine."""

    model: str
    name: str
    unit: str
    samples: dict[str, list[float]]

    @property
    def ratio(self) -> float | None:
        """Median of Pumice divided by the median of llama.cpp."""
        if not all(self.samples.get(engine) for engine in ENGINES):
            return None
        ours, theirs = (statistics.median(self.samples[engine]) for engine in ENGINES)
        return ours / theirs

    def markdown(self) -> str:
        ratio = "-" if self.ratio is None else f"{self.ratio:.2f}"
        spreads = [spread(self.samples.get(engine, [])) for engine in ENGINES]
        return markdown_row([self.model, f"{self.name}, {self.unit}", *spreads, ratio])

    def as_dict(self) -> dict[str, Any]:
        medians = {engine: statistics.median(values) for engine, values in self.samples.items() if values}
        return {**asdict(self), "medians": medians, "ratio": self.ratio}


def spread(values: list[float]) -> str:
    """Format the median, minimum and maximum."""
    if not values:
        return "-"
    digits = max(0, 3 - len(str(int(max(values)))))
    middle, low, high = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({low} to {high})"


def markdown_row(cells: list[str]) -> str:
    return "| " + " | ".join(f"{cell:<{width}}" for cell, width in zip(cells, (24, 30, 24, 24, 6), strict=True)) + " |"
