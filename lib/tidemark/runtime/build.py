"""The build that a process runs, for ``--version``."""

import importlib.util
import platform
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final

_HOT: Final = "tidemark.model.topics"
"""A module that the compiled build has (tools/compiled)."""
_PGO: Final = "--enable-optimizations"


def is_compiled() -> bool:
    """True if the hot modules are C, made by mypyc of the same source."""
    spec = importlib.util.find_spec(_HOT)
    return spec is not None and (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES))


def is_optimized(config_args: str) -> bool:
    """True if the interpreter was built with profile-guided optimization."""
    return _PGO in config_args


def build_text() -> str:
    """Return the build in words: ``compiled, Python 3.11.2``."""
    kind = "compiled" if is_compiled() else "interpreted"
    how = "" if is_optimized(str(sysconfig.get_config_var("CONFIG_ARGS"))) else " without PGO"
    return f"{kind}, Python {platform.python_version()}{how}"
