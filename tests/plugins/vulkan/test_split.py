"""How layers are shared out over memory."""

from pumice_vulkan.split import RESERVE, layers_that_fit


def test_the_last_layers_fit_first() -> None:
    sizes = {0: 500, 1: 100, 2: 100, 3: 300}
    assert layers_that_fit(sizes, [RESERVE + 1000]) == 4
    assert layers_that_fit(sizes, [RESERVE + 999]) == 3
    assert layers_that_fit(sizes, [RESERVE + 399]) == 1
    assert layers_that_fit(sizes, [RESERVE + 299]) == 0
    assert layers_that_fit(sizes, [0]) == 0


def test_no_layer_lies_on_two_devices() -> None:
    sizes = {0: 500, 1: 100, 2: 100, 3: 300}
    assert layers_that_fit(sizes, [RESERVE + 500, RESERVE + 500]) == 4
    assert layers_that_fit(sizes, [RESERVE + 499, RESERVE + 500]) == 3
    assert layers_that_fit(sizes, [RESERVE + 700, RESERVE + 300]) == 4
