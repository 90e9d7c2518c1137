"""For every test: property tests must not fail because the machine is busy, and `make unit` draws
fewer examples of each than `make test` does.
"""

import gc
import os
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

QUICK: Final = bool(os.environ.get("QUICK"))
QUICK_EXAMPLES_MAX: Final = 8
_CALM = [HealthCheck.too_slow]
settings.register_profile("full", deadline=None, suppress_health_check=_CALM, print_blob=True)
settings.register_profile(
    "quick", settings.get_profile("full"), max_examples=QUICK_EXAMPLES_MAX, database=None
)
settings.load_profile("quick" if QUICK else "full")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In a quick run also tests that ask for a number of examples of their own draw few."""
    for item in items if QUICK else ():
        for owner, name in (
            (getattr(item, "obj", None), "_hypothesis_internal_use_settings"),
            (getattr(item, "cls", None), "settings"),  # of a state machine
        ):
            own = getattr(owner, name, None)
            if isinstance(own, settings) and own.max_examples > QUICK_EXAMPLES_MAX:
                setattr(owner, name, settings(own, max_examples=QUICK_EXAMPLES_MAX))


def pytest_collection_finish() -> None:
    """What was imported stays: the collector need not look at it again and again."""
    gc.freeze()
