"""The build that a process runs, for ``--version``."""

import importlib.util
import platform
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final

_HOT: Final = "tidemark.model.topics"
"""A module that the compiled build has (tools/compiled)."""


def is_compiled() -> bool:
    """True if the hot modules are C, made by mypyc of the same source."""
    spec = importlib.util.find_spec(_HOT)
    return spec is not None and (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES))


def build_text() -> str:
    """Return the build in words: ``compiled, Python 3.11.2``."""
    kind = "compiled" if is_compiled() else "interpreted"
    return f"{kind}, Python {platform.python_version()}"
