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
