"""Rows of numbers on which quantizers differ from one another, and weights for them; the same on every machine."""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]

COLUMNS = 768  # three blocks of 256


def rows(columns: int = COLUMNS) -> dict[str, Rows]:
    """float32 [columns] by what is special about them."""
    random = np.random.RandomState(7)  # its streams never change

    def normal() -> NDArray[np.float64]:
        return random.standard_normal(columns)

    def by_block(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.repeat(values, 32)

    n_blocks = columns // 32
    below = np.exp2(random.randint(-126, 126, columns)).astype(np.float32).view(np.int32) - random.randint(
        0, 100, columns
    )
    made = {
        "normal": normal() * 0.02,
        "normal_2": normal() * 0.02,
        "normal_3": normal() * 0.02,
        "heavy_tails": normal() ** 3,
        "zeros": np.zeros(columns),
        "negative_zeros": np.full(columns, -0.0),
        "constant": np.full(columns, 0.5),
        "positive": np.abs(normal()),
        "negative": -np.abs(normal()),
        "one_outlier": np.where(np.arange(columns) == 5, 100.0, 0.0),
        "sparse": np.where(random.random_sample(columns) < 0.1, normal(), 0),
        "few_values": random.randint(-3, 4, columns) / 4,
        "uneven_blocks": normal() * by_block(random.standard_normal(n_blocks) ** 4),
        "constant_blocks": by_block(random.standard_normal(n_blocks) * (random.random_sample(n_blocks) < 0.5)),
        "large": normal() * 1e4,
        "small": normal() * 1e-8,
        "tiny": normal() * 1e-20,
        "subnormal": normal() * 1e-39,
        "below_powers_of_two": below.astype(np.int32).view(np.float32),
    }
    return {name: values.astype(np.float32) for name, values in made.items()}


def weights(columns: int = COLUMNS) -> Rows:
    """Such as an importance matrix has: positive, some much larger than others."""
    return (np.random.RandomState(8).random_sample(columns) ** 3 + 1e-4).astype(np.float32)
