"""Files that are broken in one way each are named rightly, and good ones give no alarm."""

import pytest

from broken_models import ON_ANY, write_broken
from pumice.check import Plan, check
from pumice.config import load_config
from pumice.demo import DEMOS, demo_model_path
from pumice.quantize import QuantizeOptions, quantize
from pumice.registry import get_registry

STORY = """\
Once upon a time, there lived a young mole. His name was Eli, and his home was a cottage where it always smelled of \
biscuits. One evening, when his aunt had blown out the candle, Eli hugged his spotted mitten and closed his eyes. Then \
there was a sound like claws on wood. Scratch, scratch, scratch. "You and I will go together," he said to his mitten.

Slowly he got out of bed, with a candle in one hand and the spotted mitten in the other. It was so dark outside that \
he could see only two bright eyes. "Sorry," said a voice. It was Hazel, a rabbit who was too small to reach the bell.
"""
"""A text that the demo model has learned."""

ON_SMALL = {name: breakage for name, breakage in ON_ANY.items() if not breakage.subject.endswith("$")}
"""Without those that are looked for only in models whose size says how well they should predict a text."""


@pytest.fixture(scope="module")
def registry():
    return get_registry(load_config({}))


@pytest.mark.parametrize("name", ON_SMALL)
def test_a_broken_file_is_named(name, tmp_path, registry):
    breakage = ON_SMALL[name]
    path = write_broken(demo_model_path(), tmp_path / "broken.gguf", breakage)
    findings = list(check(path, registry, {"backend": "cpu"}, Plan(STORY, runs=breakage.runs)))
    assert [finding for finding in findings if breakage.named_by(finding)], findings


@pytest.mark.parametrize("model", DEMOS)
def test_a_good_file_gives_no_alarm(model, registry):
    findings = list(check(DEMOS[model], registry, {"backend": "cpu"}))
    assert {finding.level for finding in findings} == {"note"}, findings
    assert {finding.subject for finding in findings} == {"prediction", "chat", "tool calls"}


def test_a_folder_that_is_no_model_is_an_error(tmp_path, registry):
    assert [(finding.level, finding.subject) for finding in check(tmp_path, registry, {})] == [("error", "file")]


def test_the_base_shows_which_tensors_lose_most(tmp_path, registry):
    quantized, damaged = tmp_path / "quantized.gguf", tmp_path / "damaged.gguf"
    quantize(demo_model_path(), quantized, "Q4_0", options=QuantizeOptions(allow_requantize=True))
    write_broken(quantized, damaged, ON_ANY["rows shuffled"])
    for path, expected in ((quantized, []), (damaged, ["blk.2.ffn_down.weight"])):
        findings = list(check(path, registry, {"backend": "cpu"}, Plan(STORY, demo_model_path())))
        assert [finding.subject for finding in findings if finding.level != "note"] == expected, findings
        lost, divergence = (finding.message for finding in findings if finding.subject == "quantization")
        assert lost.startswith("tensors that lose most: ")
        assert "mean KL divergence from the base" in divergence
    assert "with one layer of it alone: blk.2 " in divergence
