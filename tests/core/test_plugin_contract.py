"""The contract of plugins: what is promised is reviewed."""

from tools.plugin_contract import TARGET, describe

import pumice.plugin
from pumice.plugin import unstable


def test_the_promised_names_and_signatures_are_those_that_were_reviewed():
    assert describe() == TARGET.read_text(), "run `python tools/plugin_contract.py`, and review the difference"


def test_a_name_is_in_one_tier_and_the_promised_one_is_small():
    assert not set(pumice.plugin.__all__) & set(unstable.__all__)
    assert len(pumice.plugin.__all__) <= 45
    assert all(hasattr(unstable, name) for name in unstable.__all__)
