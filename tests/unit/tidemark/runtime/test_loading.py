"""Modules are loaded without collections, and collections go on afterwards."""

import subprocess
import sys

import pytest

LOADED = """
import gc
from tidemark.runtime.loading import without_collections
try:
    with without_collections():
        assert not gc.isenabled()
        {during}
except ImportError:
    pass
assert gc.isenabled()
assert gc.get_freeze_count() > 1_000
"""


@pytest.mark.parametrize("during", ["import asyncio", "import no_such_module"])
def test_collections_go_on_after_the_modules_are_loaded(during: str) -> None:
    subprocess.run([sys.executable, "-c", LOADED.format(during=during)], check=True)


@pytest.mark.parametrize(
    "service", ["broker", "controller", "txn_coordinator", "share_coordinator"]
)
def test_a_service_loads_its_modules_in_its_entry_point_only(service: str) -> None:
    """Where they are imported by the entry point's module, collections take place."""
    look = f"import sys, {service}.__main__; sys.exit('{service}.process' in sys.modules)"
    subprocess.run([sys.executable, "-c", look], check=True)
