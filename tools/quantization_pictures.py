"""Measure the loss from quantization and draw docs/pictures/quantization.png: size against divergence and perplexity.

    .venv/bin/python -m pip install matplotlib && .venv/bin/python tools/quantization_pictures.py

By default for the demo model, on held-out stories. For another model, pass a text to measure on and one for the
importance matrix:

    ... tools/quantization_pictures.py --model model-f16.gguf --text test.txt --calibration train.txt --out mine

Measurements are stored as JSON next to the picture; ``--draw`` only draws them again.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import pumice
from pumice.imatrix import ActivationSums, Collector, write_sums
from pumice.quantize import QuantizeOptions, quantize

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from tools.demo_model.generate import stories  # noqa: E402

N_CTX = 512
HELD_OUT, CALIBRATION = 60, 200  # stories to measure on, and for the importance matrix

FAMILIES = {
    "one scale per block": ("Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0"),
    "K: nested blocks": ("Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q4_K_S", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K"),
    "IQ: codes from a table": ("IQ4_NL", "IQ4_XS", "IQ3_M", "IQ3_XXS", "IQ2_M", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S"),
}
NEED_WEIGHTS = ("IQ3_XXS", "IQ2_M", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S")
HIGHEST = 1.035  # largest plotted perplexity, relative to the original model's
SAME = 1e-6  # divergence from rounding alone
COLOURS = ("#b3541e", "#2a6f97", "#3f7d3a")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=pumice.demo_model_path())
    parser.add_argument("--text", type=Path, help="texts to measure on, separated by lines of ---")
    parser.add_argument("--calibration", type=Path, help="text for the importance matrix")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures" / "quantization")
    parser.add_argument("--draw", action="store_true", help="only draw the stored measurements")
    arguments = parser.parse_args()
    measured = arguments.out.with_suffix(".json")
    if not arguments.draw:
        texts, calibration = (
            path.read_text().split("\n---\n") if path else written(shard, count)
            for path, shard, count in ((arguments.text, -2, HELD_OUT), (arguments.calibration, 0, CALIBRATION))
        )
        facts = measure(arguments.model, texts, calibration)
        measured.write_text(json.dumps(facts, indent=1) + "\n")
    draw(json.loads(measured.read_text()), arguments.out.with_suffix(".png"))


def written(shard: int, count: int) -> list[str]:
    """Return stories of the demo model's grammar; the shards from 0 on are training data."""
    return [story.text for story in islice(stories(1, shard), count)]


def measure(model: Path, texts: list[str], calibration: list[str]) -> dict[str, Any]:
    """Return each type's size and divergence from the original model, with and without importance matrix."""
    with TemporaryDirectory() as folder:
        imatrix, out = Path(folder) / "imatrix.gguf", Path(folder) / "quantized.gguf"
        write_sums(imatrix, activations(model, calibration))
        base = Path(folder) / "base"
        base.mkdir()
        for i, (logits, _) in enumerate(predictions(model, texts)):
            np.save(base / f"{i}.npy", logits.astype(np.float16))
        whole, points = compare(model, texts, base), []
        for name in (name for names in FAMILIES.values() for name in names):
            for weights in (None, imatrix)[name in NEED_WEIGHTS :]:
                quantize(model, out, name, imatrix=weights, options=QuantizeOptions(allow_requantize=True), force=True)
                points.append({"type": name, "imatrix": weights is not None, **compare(out, texts, base)})
                print(points[-1], flush=True)
        return {"model": model.name, **whole, "points": points}


def activations(model: Path, texts: list[str]) -> ActivationSums:
    """Return the inputs' statistics of the model's matrices (the importance matrix)."""
    collector = Collector(ActivationSums())
    with pumice.load(model, n_ctx=N_CTX, observer=collector) as loaded:
        for ids in chunks(loaded, texts):
            loaded.logits(ids)
    return collector.sums


def predictions(model: Path, texts: list[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield for each chunk the logits of all tokens but the first, and these tokens."""
    with pumice.load(model, n_ctx=N_CTX) as loaded:
        for ids in chunks(loaded, texts):
            [logits] = loaded.engine.continuation_logits(ids[:1], [ids[1:]])
            yield logits, np.array(ids[1:])


def chunks(model: pumice.Model, texts: list[str]) -> Iterator[list[int]]:
    """Yield texts as tokens with EOS, split to fit the context."""
    for text in texts:
        ids = model.tokenizer.tokenize(text) + [model.tokenizer.eos] * (model.tokenizer.eos is not None)
        yield from (ids[i : i + N_CTX] for i in range(0, len(ids) - 1, N_CTX))


def compare(path: Path, texts: list[str], base: Path) -> dict[str, float]:
    """Compare a model with the stored predictions of another."""
    losses, divergences, same = [], [], []
    for i, (logits, tokens) in enumerate(predictions(path, texts)):
        ours, theirs = log_softmax(logits), log_softmax(np.load(base / f"{i}.npy").astype(np.float32))
        losses.append(-ours[np.arange(len(tokens)), tokens])
        divergences.append((np.exp(theirs) * (theirs - ours)).sum(axis=1))
        same.append(ours.argmax(axis=1) == theirs.argmax(axis=1))
    return {
        "bytes": path.stat().st_size,
        "perplexity": float(np.exp(np.concatenate(losses).mean())),
        "divergence": float(np.concatenate(divergences).mean()),
        "same_top": float(np.concatenate(same).mean()),
        "tokens": sum(map(len, losses)),
    }


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def draw(facts: dict[str, Any], out: Path) -> None:
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, panels = plt.subplots(2, 1, figsize=(9.5, 10), layout="constrained")
    top = facts["perplexity"] * HIGHEST
    for panel, value, title in zip(
        panels, ("divergence", "perplexity"), ("KL divergence from the model", "perplexity"), strict=True
    ):
        points = [p for p in facts["points"] if p["divergence"] > SAME] if value == "divergence" else facts["points"]
        panel.set(xlabel="MB", title=title, yscale="log" if value == "divergence" else "linear")
        if value == "perplexity":
            panel.set_ylim(facts["perplexity"] * 0.999, top)
        for (family, names), colour in zip(FAMILIES.items(), COLOURS, strict=True):
            for weighed in (False, True):
                chosen = [p for p in points if p["type"] in names and p["imatrix"] == weighed]
                panel.scatter(
                    [p["bytes"] / 1e6 for p in chosen],
                    [p[value] for p in chosen],
                    s=30,
                    edgecolors=colour,
                    facecolors=colour if weighed else "white",
                    label=family if weighed else None,
                    zorder=3,
                )
        panel.grid(color="#e6e6e6", zorder=0)
        label(panel, points, value)
    panels[0].legend(title="filled: with an importance matrix", frameon=False)
    panels[1].axhline(facts["perplexity"], color="#777777", lw=0.8, ls="--")
    above = ", ".join(f"{p['type']} {p['perplexity']:.2f}" for p in facts["points"] if p["perplexity"] > top)
    if above:
        panels[1].text(0.02, 0.96, f"above: {above}", transform=panels[1].transAxes, color="#555555")
    figure.suptitle(f"{facts['model']}: loss from quantization over {facts['tokens']:,} tokens")
    figure.savefig(out, dpi=100)


def label(panel: Any, points: list[dict[str, Any]], value: str) -> None:
    """Label each type at its best point, where there is space."""
    panel.figure.canvas.draw()
    best: dict[str, dict[str, Any]] = {}
    for point in sorted(points, key=lambda p: -float(p[value])):
        best[point["type"]] = point
    taken = [box(panel, p, value, -4, -4, 8) for p in points]
    low, high = panel.get_ylim()
    for name, point in best.items():
        if not low <= point[value] <= high:
            continue
        width = 5.2 * len(name)
        places = [(x, y) for d in (0, 9, 18, 30, 42) for x in (6, -6 - width) for y in (-4 - d, -4 + d)]
        x, y = min(places, key=lambda place: overlaps(box(panel, point, value, *place, width), taken))
        taken.append(box(panel, point, value, x, y, width))
        panel.annotate(
            name,
            (point["bytes"] / 1e6, point[value]),
            xytext=(x, y),
            textcoords="offset pixels",
            fontsize=7,
            arrowprops={"arrowstyle": "-", "lw": 0.4, "color": "#999999"} if abs(y + 4) > 9 else None,
        )


def box(panel: Any, point: dict[str, Any], value: str, x: float, y: float, width: float) -> tuple[float, ...]:
    """Return left, bottom, right and top in pixels of a text next to a point."""
    left, bottom = panel.transData.transform((point["bytes"] / 1e6, point[value]))
    return left + x, bottom + y, left + x + width, bottom + y + 9


def overlaps(mine: tuple[float, ...], others: list[tuple[float, ...]]) -> int:
    return sum(mine[0] < o[2] and o[0] < mine[2] and mine[1] < o[3] and o[1] < mine[3] for o in others)


if __name__ == "__main__":
    main()
