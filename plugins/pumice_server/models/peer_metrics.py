"""llama-server's metrics, computed from Pumice's and summed over the models."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from prometheus_client.samples import Sample

import pumice


class _Metric(NamedTuple):
    name: str
    ours: str
    help: str


_TOTALS = (
    _Metric("prompt_tokens_total", "pumice_prompt_read_tokens_total", "Prompt tokens computed"),
    _Metric("prompt_tokens_cached_total", "pumice_prompt_cached_tokens_total", "Prompt tokens found in the KV cache"),
    _Metric("prompt_seconds_total", "pumice_prompt_seconds_total", "Prompt processing time in seconds"),
    _Metric("tokens_predicted_total", "pumice_generated_tokens_total", "Generated tokens"),
    _Metric("tokens_predicted_seconds_total", "pumice_generation_seconds_total", "Generation time in seconds"),
    _Metric("spec_decode_num_drafts_total", "pumice_drafts_total", "Drafts that were verified"),
    _Metric("spec_decode_num_draft_tokens_total", "pumice_drafted_tokens_total", "Drafted tokens that were verified"),
    _Metric(
        "spec_decode_num_accepted_tokens_total", "pumice_accepted_tokens_total", "Drafted tokens that were accepted"
    ),
)
_AT = _Metric(
    "spec_decode_num_accepted_tokens_per_pos_total",
    "pumice_accepted_tokens_at_total",
    "Drafted tokens that were accepted, by position in the draft",
)
_STEPS = "pumice_engine_steps"
_GAUGES = (
    _Metric("requests_processing", "pumice_engine_sequences_running", "Running sequences"),
    _Metric("requests_deferred", "pumice_engine_sequences_waiting", "Sequences waiting for a slot"),
)
_RATES = {"prompt_tokens_seconds": (0, 2, "Prompt"), "predicted_tokens_seconds": (3, 4, "Generated")}
"""Name, and of ``_TOTALS`` the numbers of tokens and of seconds."""

_READ = {metric.ours for metric in (*_TOTALS, *_GAUGES)} | {_STEPS}


class PeerMetrics:
    """llama-server's metrics. Rates are those since the previous scrape."""

    def __init__(self) -> None:
        self._told = [0.0] * len(_TOTALS)
        self._longest = 0

    def note(self, timings: pumice.Timings) -> None:
        """Note a sequence that ended."""
        self._longest = max(self._longest, timings.prompt_tokens + timings.generated_tokens)

    def text(self, samples: Iterable[Sample], steps_before: int) -> str:
        """Return the metrics in Prometheus' format; ``steps_before`` counts steps of engines that were unloaded."""
        values, accepted_at = dict.fromkeys(_READ, 0.0), Counts[int]()
        for sample in samples:
            if sample.name in _READ:
                values[sample.name] += sample.value
            elif sample.name == _AT.ours:
                accepted_at[int(sample.labels["position"])] += int(sample.value)
        totals = [values[metric.ours] for metric in _TOTALS]
        steps = values[_STEPS] + steps_before
        lines = [_lines(metric.name, "counter", metric.help, values[metric.ours]) for metric in _TOTALS]
        lines += [_positions(accepted_at)] if accepted_at else []
        lines.append(_lines("n_decode_total", "counter", "Batches computed", steps))
        lines.append(_lines("n_tokens_max", "counter", "Length of the longest sequence in tokens", self._longest))
        lines += [_lines(metric.name, "gauge", metric.help, values[metric.ours]) for metric in _GAUGES]
        for name, (tokens, seconds, what) in _RATES.items():
            spent = totals[seconds] - self._told[seconds]
            rate = (totals[tokens] - self._told[tokens]) / spent if spent else 0.0
            lines.append(_lines(name, "gauge", f"{what} tokens per second, since the last scrape", rate))
        per_step = totals[3] / steps if steps else 0.0
        lines.append(_lines("n_busy_slots_per_decode", "gauge", "Tokens generated per batch", per_step))
        self._told = totals
        return "".join(lines)


def _positions(accepted_at: Mapping[int, int]) -> str:
    """Return the accepted tokens by position in the draft, from 0."""
    name = f"llamacpp:{_AT.name}"
    rows = (f'{name}{{position="{position}"}} {accepted_at[position]}\n' for position in sorted(accepted_at))
    return f"# HELP {name} {_AT.help}.\n# TYPE {name} counter\n{''.join(rows)}"


def _lines(name: str, kind: str, help: str, value: float) -> str:
    name = f"llamacpp:{name}"
    return f"# HELP {name} {help}.\n# TYPE {name} {kind}\n{name} {value:.10g}\n"
