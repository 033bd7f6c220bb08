"""Speech models on Vulkan, beside the samples of their authors' package."""

import numpy as np
import pytest

import pocket_models as tiny
import pumice


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny.write_converted(tmp_path_factory.mktemp("pocket"), 40.0)


@pytest.mark.usefixtures("vulkan_device")
def test_a_speech_is_that_of_the_package(path, rounding):
    with pumice.load(path, backend="vulkan", kv_type="f32") as model:
        sound = model.speech.speak(tiny.TEXT, temperature=0.0).source
    with np.load(tiny.FIXTURE) as file:
        expected, length = file["ends, plain"], int(file["ends, plain, length"])
    assert len(sound) == length
    atol = max(2e-5, rounding * np.abs(expected).max())
    np.testing.assert_allclose(np.concatenate([sound[:3000], sound[3000::37]]), expected, atol=atol)
