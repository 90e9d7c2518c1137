"""A pytest plugin: one module of the product is loaded with an exercise's change in its source.

``BROKEN_EXERCISE`` is the number of a row in the table of CONTRIBUTING.md, from 0. The files stay
as they are, so that other tests may run at the same time.
"""

import os
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Final

from tidy.exercise import ROOT, broken_source, exercises

_EXERCISE: Final = exercises()[int(os.environ["BROKEN_EXERCISE"])]
_PATH: Final = (ROOT / _EXERCISE.path).resolve()
_load = SourceFileLoader.get_code


def _get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
    path = Path(loader.get_filename(name)).resolve()
    if path != _PATH:
        return _load(loader, name)
    return loader.source_to_code(broken_source(_EXERCISE).encode(), str(path))


type.__setattr__(SourceFileLoader, "get_code", _get_code)
