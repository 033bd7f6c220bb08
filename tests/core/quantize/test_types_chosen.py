"""Which type each tensor gets, next to llama-quantize."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from pumice.errors import QuantizeError
from pumice.gguf import GGMLType, GGUFFile, encode
from pumice.quantize import FILE_TYPES, ImportanceMatrix, QuantizeOptions, plan_quantization
from quantize_outlines import OUTLINES, write_outline

EXPECTED = json.loads((Path(__file__).parents[2] / "fixtures" / "quantized_types.json").read_text())
NO_WEIGHTS = ImportanceMatrix(Path("imatrix.gguf"), {"x": np.ones(4, np.float32)})


@pytest.fixture(scope="module", params=OUTLINES)
def outline(request, tmp_path_factory):
    return request.param, GGUFFile.open(write_outline(tmp_path_factory.mktemp("m") / "model.gguf", request.param))


def types_of(plan):
    return {decision.info.name: decision.info.type.name for decision in plan.decisions}


def digest(types):
    return hashlib.sha256("\n".join(f"{name} {type}" for name, type in types.items()).encode()).hexdigest()[:12]


def test_types_are_those_of_llama_quantize(outline):
    name, file = outline
    for to in FILE_TYPES:
        weights = {tensor.name: np.ones(columns_of(tensor), np.float32) for tensor in file.tensors.values()}
        matrix = ImportanceMatrix(Path("imatrix.gguf"), weights)
        for label, imatrix in ((to, None), (f"{to} imatrix", matrix)):
            expected = EXPECTED[name][label]
            if expected == "refused":
                with pytest.raises(QuantizeError, match="is not divisible into"):
                    plan_quantization(file, to, imatrix=imatrix)
            else:
                assert digest(types_of(plan_quantization(file, to, imatrix=imatrix))) == expected, label


def columns_of(tensor):
    return tensor.shape[-1] * (tensor.shape[-3] if len(tensor.shape) > 2 else 1)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return GGUFFile.open(write_outline(tmp_path_factory.mktemp("m") / "model.gguf", "llama"))


def test_options(llama):
    def types(to, **options):
        return types_of(plan_quantization(llama, to, options=QuantizeOptions(**options)))

    pure = types("Q4_K_M", pure=True)
    assert {type for name, type in pure.items() if "norm" not in name} == {"Q4_K"}
    assert types("Q4_K_M", leave_output=True)["output.weight"] == "F16"
    assert types("Q4_K_M", output_type=GGMLType.Q8_0)["output.weight"] == "Q8_0"
    assert types("F16", embedding_type=GGMLType.Q8_0)["token_embd.weight"] == "Q8_0"
    patterns = [(r"blk\.1[0-9]\.ffn_up", GGMLType.Q8_0), ("ffn_up", GGMLType.Q2_K)]
    chosen = types("Q4_K_M", tensor_types=patterns)
    assert (chosen["blk.9.ffn_up.weight"], chosen["blk.10.ffn_up.weight"]) == ("Q2_K", "Q8_0")
    assert types("Q4_0", overrides={"llama.expert_count": encode(8)})["blk.0.attn_k.weight"] == "Q8_0"


def test_layers_are_left_out(llama):
    plan = plan_quantization(llama, "Q8_0", options=QuantizeOptions(prune_layers=[0, 5]))
    sources = {decision.info.name: decision.source.name for decision in plan.decisions}
    assert sources["blk.0.ffn_up.weight"] == "blk.1.ffn_up.weight"
    assert sources["blk.4.ffn_up.weight"] == "blk.6.ffn_up.weight"
    assert "blk.15.ffn_up.weight" not in sources
    assert plan.metadata["llama.block_count"] == encode(15)


@pytest.mark.parametrize(
    ("to", "options", "message"),
    [
        ("Q4_Z", {}, "unknown type 'Q4_Z'; did you mean"),
        ("Q4_0", {"tensor_types": [("no_such", GGMLType.Q8_0)]}, "the pattern 'no_such' matches no tensor"),
        ("Q4_0", {"tensor_types": [("(", GGMLType.Q8_0)]}, r"invalid regular expression '\('"),
        ("F16", {"tensor_types": [("ffn", GGMLType.Q8_0)]}, "F16 sets one type for all tensors, so patterns"),
        ("Q4_0", {"prune_layers": [99]}, "no layer 99 to leave out"),
    ],
)
def test_impossible_type_choices(llama, to, options, message):
    with pytest.raises(QuantizeError, match=message):
        plan_quantization(llama, to, options=QuantizeOptions(**options))


def test_weights_that_are_missing_or_of_another_model(llama):
    with pytest.raises(QuantizeError, match=r"no weights for tensor 'blk.0.attn_k.weight', whose new type needs them"):
        plan_quantization(llama, "IQ2_XXS", imatrix=NO_WEIGHTS)
    other = ImportanceMatrix(Path("imatrix.gguf"), {"blk.3.attn_k.weight": np.ones(4, np.float32)})
    with pytest.raises(QuantizeError, match=r"4 weights for tensor 'blk.3.attn_k.weight', which has 1 x 256"):
        plan_quantization(llama, "Q4_K_M", imatrix=other)
