"""How well the model predicts a text, beside what its size suggests, and with which changes it predicts it better.

A trained model is at a minimum of its loss. If it predicts the text clearly better with another base of its rotary
positions, with heads in the other order, or without a layer, then that is what is wrong with the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from pumice.architecture import HParams
from pumice.check.findings import Finding, Subject, Variant
from pumice.errors import PumiceError
from pumice.graph.source import ArraySource
from pumice.model import Model
from pumice.tokenizers.vocabulary import PREFIX

BASES = (1e4, 1e5, 5e5, 1e6)  # of rotary positions in published models
LARGEST_RATIO = 1.5  # of the bits per byte to those that the size suggests
FEWEST_PARAMETERS = 50_000_000  # for which a size suggests something: smaller models are trained for one purpose
GAIN = 0.02  # share of the bits per byte by which a variant must be better to be what the model was trained with
LARGE_GAIN = 0.1  # the same without one layer, and of a model that predicts the text badly with the variant, too
OUTPUTS = re.compile(r"blk\.(\d+)\.(attn_output|attn_out|ssm_out|time_mix_output|ffn_down\w*)\.weight")
"""Matrices that write to the residual stream: a layer without them does nothing."""


def check_prediction(subject: Subject) -> Iterator[Finding]:
    """Measure the bits per byte of a text; if they are many, look for the reason."""
    with subject.load() as model:
        if not model.facts.generates or model.facts.fills_masks or subject.tokenizer is None:
            return
        ids = model.tokenizer.tokenize(subject.text)
        bits = _bits(model, ids)
        if not math.isfinite(bits):
            yield Finding("error", "prediction", "the logits of a text are not finite numbers")
            return
        guessing = math.log2(model.n_vocab) * len(ids) / len(subject.text.encode())
        tokenized = list(_other_tokens(subject, model))
        n_parameters = model.summary.n_parameters
    suggested, judged = expected_bits(n_parameters), n_parameters >= FEWEST_PARAMETERS
    measured = f"the text takes {bits:.3f} bits per byte"
    if bits >= guessing and not judged:
        advice = "this small model knows no such texts; give one that it knows with --file"
        yield Finding("note", "prediction", f"{measured}, more than guessing ({guessing:.3f}): {advice}")
        return
    causes = [*_better(tokenized, bits, suggested), *_better(_variants(subject), bits, suggested)]
    yield from causes
    bad = judged and bits > LARGEST_RATIO * suggested
    if bad and not causes:
        yield from _layers(subject, bits)
    size = f"{n_parameters / 1e6:,.0f} million parameters suggest about {suggested:.3f} for English"
    advice = "; the file is damaged, or the model knows no such texts: give one that it knows with --file"
    yield Finding("warning" if bad else "note", "prediction", f"{measured}; {size}{advice if bad else ''}")


def expected_bits(n_parameters: int) -> float:
    """Return the bits per byte of English that a size suggests.

    The loss per token is that of Hoffmann et al. 2022 (arXiv:2203.15556, eq. 10) with unlimited data; a token of its
    vocabulary has about 4.5 bytes.
    """
    return (1.69 + 406.4 / n_parameters**0.34) / math.log(2) / 4.5


def _bits(model: Model, ids: Sequence[int]) -> float:
    kept = list(ids)[: model.n_ctx]
    n_bytes = len(model.tokenizer.detokenize(kept).encode())
    return -sum(item.logprob for item in model.score(kept)) / math.log(2) / n_bytes


def _other_tokens(subject: Subject, model: Model) -> Iterator[tuple[str, str, float]]:
    """Yield subject, description and bits per byte of the text with other tokens: with BOS, or without."""
    bos = model.tokenizer.bos
    if bos is None:
        return
    plain, adds = model.tokenizer.tokenize(subject.text, add_special=False), model.tokenizer.add_bos
    ids = plain if adds else [bos, *plain]
    message = f"is {str(adds).lower()}, but the text is predicted better {'without' if adds else 'with'} BOS"
    if plain[:1] != [bos]:
        yield f"{PREFIX}add_bos_token", message, _bits(model, ids)


def _variants(subject: Subject) -> Iterator[tuple[str, str, float]]:
    """Yield subject, description and bits per byte of the model with other positions."""
    name, metadata = subject.file.architecture, subject.file.metadata
    architecture = subject.registry.architectures.find(name)
    base, factor = f"{name}.rope.freq_base", f"{name}.rope.scaling.factor"
    variants = [
        (
            base,
            f"is {metadata.get(base, 1e4):g}, but the text is predicted better with {value:g}",
            Variant({base: value}),
        )
        for value in BASES
        if value != metadata.get(base, 1e4)
    ]
    if hasattr(architecture, "neox"):
        message = "rows of queries and keys are in the other order: pairs of rotary positions are not where they belong"
        flipped = Variant(attributes={"neox": not architecture.neox})
        variants.append(("blk.*.attn_q.weight, blk.*.attn_k.weight", message, flipped))
    if metadata.get(factor, 1.0) not in (0.0, 1.0):
        message = f"is {metadata[factor]:g}, but the text is predicted better without scaling"
        variants.append((factor, message, Variant({factor: 1.0, f"{name}.rope.scaling.type": "none"})))
    if (count := _whole_heads(subject)) is not None:
        key = f"{name}.rope.dimension_count"
        message = f"is {metadata[key]}, but the text is predicted better if all {count} values of a head are rotated"
        variants.append((key, message, Variant({key: count})))
    for done, (where, message, variant) in enumerate(variants):
        subject.progress(done, len(variants))
        try:
            with subject.load(variant) as model:
                yield where, message, _bits(model, model.tokenizer.tokenize(subject.text))
        except PumiceError:
            continue  # the family cannot be changed like that


def _whole_heads(subject: Subject) -> int | None:
    """Return the size of heads, of which the file rotates a part; None if it does not say so."""
    hparams, metadata = HParams(subject.file.metadata), subject.file.metadata
    rotated, heads = (
        metadata.get(f"{hparams.architecture}.{key}") for key in ("rope.dimension_count", "attention.head_count")
    )
    if not isinstance(rotated, int) or not isinstance(heads, int) or heads < 1:
        return None
    size = hparams.get_int("attention.key_length", hparams.get_int("embedding_length") // heads)
    return size if rotated < size else None


def _better(variants: Iterable[tuple[str, str, float]], bits: float, suggested: float) -> Iterator[Finding]:
    """Yield the best variant, if it is clearly better than the file; of a model that stays bad, far better."""
    where, message, best = min(variants, key=lambda variant: variant[2], default=("", "", bits))
    gain = GAIN if best < LARGEST_RATIO * suggested else LARGE_GAIN
    if best < (1 - gain) * bits:
        yield Finding("error", where, f"{message}: {best:.3f} instead of {bits:.3f} bits per byte")


def _layers(subject: Subject, bits: float) -> Iterator[Finding]:
    """Yield the layer without which the model predicts the text best, if that is better than with it."""
    outputs: dict[int, dict[str, ArraySource]] = {}
    for name, tensor in subject.file.tensors.items():
        if layer := OUTPUTS.fullmatch(name):
            outputs.setdefault(int(layer[1]), {})[name] = ArraySource(np.zeros(tensor.shape, np.float32))
    results: dict[str, float] = {}
    for done, (number, silent) in enumerate(sorted(outputs.items())):
        subject.progress(done, len(outputs))
        with subject.load(Variant(tensors=silent)) as model:
            results[f"blk.{number}"] = _bits(model, model.tokenizer.tokenize(subject.text))
    if not results:
        return
    best, where = min((bits, where) for where, bits in results.items())
    if best < (1 - LARGE_GAIN) * bits:
        message = f"the text is predicted better without this layer: {best:.3f} instead of {bits:.3f} bits per byte"
        yield Finding("error", where, f"{message}; its tensors are damaged")
