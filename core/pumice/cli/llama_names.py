"""llama.cpp's names of options that have no meaning here, another form, or another place.

Commands that take the command line of a program of llama.cpp (``run``, ``chat``, ``serve``) add their own to these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import click

logger = logging.getLogger("pumice")

FLAGS = {
    "loading of the model": "--warmup --no-warmup --check-tensors --repack -nr --no-repack --no-host",
    "the computation": "-bs --backend-sampling --perf --no-perf --no-op-offload",
    "the key/value cache": "--swa-full",
    "chat templates": "--jinja --no-skip-chat-parsing --reasoning-preserve --no-reasoning-preserve",
    "images, sounds and videos": "--mmproj-auto --mmproj-offload --no-mmproj-offload",
    "logs": "--log-disable --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --no-log-jsonl",
    "drafts": (
        "--spec-draft-cpu-moe -cmoed --cpu-moe-draft --spec-draft-backend-sampling --no-spec-draft-backend-sampling"
    ),
}
VALUES = {
    "loading of the model": "-lm --load-mode -lzm --lazy-mode",
    "the computation": "-ub --ubatch-size -fa --flash-attn",
    "the key/value cache": "--keep -dt --defrag-thold -ctxcp --ctx-checkpoints --swa-checkpoints",
    "threads of the processor": """
        -tb --threads-batch -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -Cb --cpu-mask-batch
        -Crb --cpu-range-batch --cpu-strict-batch --prio-batch --poll-batch
    """,
    "images, sounds and videos": ("-mmdev --mmproj-device --video-fps --video-timestamp-interval --video-ffmpeg-dir"),
    "logs": "--log-file --log-colors -lv --verbosity --log-verbosity",
    "drafts": """
        --spec-draft-type-k -ctkd --cache-type-k-draft --spec-draft-type-v -ctvd --cache-type-v-draft
        --spec-draft-threads -td --threads-draft --spec-draft-threads-batch -tbd --threads-batch-draft
        --spec-draft-cpu-mask -Cd --cpu-mask-draft --spec-draft-cpu-range -Crd --cpu-range-draft
        --spec-draft-cpu-strict --cpu-strict-draft --spec-draft-prio --prio-draft --spec-draft-poll --poll-draft
        --spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft --spec-draft-cpu-strict-batch --cpu-strict-batch-draft
        --spec-draft-prio-batch --prio-batch-draft --spec-draft-poll-batch --poll-batch-draft
        --spec-draft-override-tensor -otd --override-tensor-draft
        --spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft
        --spec-draft-p-split --draft-p-split --spec-synth-len --spec-synth-rates
        --spec-draft-device -devd --device-draft
        --spec-ngram-mod-n-min --spec-ngram-mod-n-max --spec-ngram-mod-n-match
        --spec-ngram-simple-size-n --spec-ngram-simple-size-m --spec-ngram-simple-min-hits
        --spec-ngram-map-k-size-n --spec-ngram-map-k-size-m --spec-ngram-map-k-min-hits
        --spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-min-hits
    """,
}
"""Options that change no text, without and with a value, by their subject."""

NOT_DONE = {
    "templates are always rendered as Jinja": "--no-jinja",
    "weights in host memory are not copied to a GPU, which may read experts there: --moe-in-place": "--op-offload",
}
NOT_DONE_VALUES = {
    "download the draft model, and give the file as --draft": "--spec-draft-hf -hfd -hfrd --hf-repo-draft",
    "prompts are not logged": "--log-prompts-dir",
}
"""Options of what is not done, without and with a value, by the reason: texts are the same, so a warning is enough."""

REASONS = {
    "download the projector, and give the file as --mmproj": "-mmu --mmproj-url",
    "special tokens are not written into texts; leave the option out": "-sp --special",
    "llama.cpp has removed it; --help-all lists options of drafts": (
        "--draft-n --draft-n-min --spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits"
    ),
    "other machines take part through Ray: pumice serve --ray": "--rpc",
    "give a file, a name of the Hugging Face Hub or a URL as the model": "-dr --docker-repo",
    "answers of chats are always parsed; leave the option out": "--skip-chat-parsing",
    "run pumice list": "-cl --cache-list",
    "run pumice --version": "--version",
    'add eval "$(_PUMICE_COMPLETE=bash_source pumice)" to ~/.bashrc': "--completion-bash",
    "give --help": "--usage",
}
"""Options that are refused, by what to do instead."""

MODELS = "--gpt-oss-20b-default --gpt-oss-120b-default --vision-gemma-4b-default --vision-gemma-12b-default"
"""Options that name a model to download."""

_PROPOSERS = {
    "none": "off",
    "ngram-simple": "ngram-simple",
    "ngram-map-k": "ngram-map-k",
    "ngram-map-k4v": "ngram-map-k4v",
    "ngram-mod": "ngram-mod",
    "ngram-cache": "ngram-cache",
    "draft-simple": "draft",
    "draft-eagle3": "draft",
    "draft-dflash": "draft",
    "draft-dspark": "draft",
    "draft-mtp": "mtp",
}
"""Values of ``--spec-type``, and the proposers that stand for them here: texts are the same whichever it is."""


def by_name(reasons: Mapping[str, str]) -> dict[str, str]:
    """Return the reason, or subject, of each option of a table of options by their reasons."""
    return {name: reason for reason, names in reasons.items() for name in names.split()}


def _proposers(types: str) -> str:
    """Return the ``--speculate`` value for a ``--spec-type`` value; types that draft otherwise are left out."""
    proposers = [_PROPOSERS[name] for name in types.split(",") if name in _PROPOSERS]
    others = [name for name in types.split(",") if name not in _PROPOSERS]
    if wrong := [name for name in others if not name.startswith("draft-")]:
        raise click.UsageError(f"--spec-type: unknown type {wrong[0]!r} (known: {', '.join(_PROPOSERS)})")
    if others:
        logger.warning("--spec-type: %s is left out: it names no proposer of Pumice", ", ".join(others))
    return ",".join(dict.fromkeys(name for name in proposers if name != "off")) or "off"


class Translation(NamedTuple):
    """The arguments that an option stands for.

    Attributes:
        n_values: How many values the option has.
        arguments: Returns the arguments for the value, which is empty without one.
    """

    n_values: int
    arguments: Callable[[str], Sequence[str]]


TRANSLATIONS: Mapping[str, Translation] = {
    "--spec-type": Translation(1, lambda types: ["--speculate", _proposers(types)]),
    "--spec-default": Translation(0, lambda _: ["--speculate", _proposers("ngram-mod")]),
    **dict.fromkeys(["--no-mmproj", "--no-mmproj-auto"], Translation(0, lambda _: ["--mmproj", "off"])),
}
"""Options with another name here."""
