"""Trained models in the folder PUMICE_TRAINED, into which `make test-trained` fetches them."""

import os
from pathlib import Path
from typing import Any

import pytest
from tools.trained_models import fetch

import pumice

FOLDER = os.environ.get("PUMICE_TRAINED", "")
NEEDS_MODELS = pytest.mark.skipif(not FOLDER, reason="needs trained models, which `make test-trained` fetches")


def path_of(name: str) -> Path:
    """Return the path of a model, or skip the test if it cannot be had."""
    try:
        return fetch(name, Path(FOLDER).resolve())
    except OSError as error:
        pytest.skip(str(error))


def loaded(name: str, **options: Any) -> pumice.Model:
    return pumice.load(path_of(name), **({"n_ctx": 1024, "n_parallel": 1, "backend": "cpu"} | options))
