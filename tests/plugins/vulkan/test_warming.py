"""Instructions that are fetched ahead: copies of dispatches beside earlier ones, on paper."""

from pathlib import Path

import pytest

from gguf_files import tiny_llama, write_gguf
from pumice.gguf import GGMLType, GGUFFile
from pumice_vulkan import warming
from pumice_vulkan.buckets import Bucket
from pumice_vulkan.lower.rule import Dispatch
from pumice_vulkan.profiles import PROFILES
from quantizers import quantize
from tools import gpu_profiles


def lowered(path: Path) -> list[Dispatch]:
    """Return the dispatches of a step of 16 sequences of a model whose attention runs on matrix units."""
    with GGUFFile.open(tiny_llama(path.with_suffix(".f32"), dim=512, n_ff=1024)) as file:
        numbers = {name: tensor.dequantize() for name, tensor in file.tensors.items()}
        types = {name: GGMLType.Q4_0 for name, values in numbers.items() if values.ndim == 2}
        tensors = {name: quantize(values, types[name]) if name in types else values for name, values in numbers.items()}
        write_gguf(path, file.metadata, tensors, types)
    with (
        gpu_profiles.captured(path) as compiled,
        gpu_profiles.program_on(PROFILES["hopper-h200"].described(), compiled) as (shared, program),
    ):
        program._memory.sums_by_rows = True
        dispatches = program._lower(Bucket(64, 16, True))
        shared.kernels.compile(dispatches)
        return dispatches


def test_kernels_that_large_layers_displace_are_fetched_beside_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = lowered(tmp_path / "plain.gguf")
    monkeypatch.setattr(warming, "LAYER_BYTES", 1)
    dispatches = lowered(tmp_path / "ahead.gguf")
    copies = [dispatch for dispatch in dispatches if dispatch.label.startswith("instructions")]
    assert not any(dispatch.label.startswith("instructions") for dispatch in plain)
    assert [dispatch.label for dispatch in dispatches if dispatch not in copies] == [each.label for each in plain]
    assert {dispatch.kernel.partition(".")[0] for dispatch in copies} == {warming.LANES, warming.DECODE}
    assert sum(dispatch.barrier for dispatch in dispatches) == sum(dispatch.barrier for dispatch in plain)
    originals = {(dispatch.kernel, dispatch.constants) for dispatch in plain}
    for index, dispatch in enumerate(dispatches):
        if dispatch in copies:
            assert (dispatch.kernel, dispatch.constants) in originals
            assert dispatch.grid == (1, 1, 1)
            assert not dispatches[index + 1].barrier, "it runs beside another one"
