"""``python -m compiled.extension FILES``: compile modules in the current directory, in place."""

import os
import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from mypyc.build import mypycify
from setuptools import Distribution
from setuptools._distutils.ccompiler import CCompiler

GROUP: Final = "tidemark_compiled"
"""Name of the library that all modules share; calls between them are calls of C."""
_FLAGS: Final = "-DNDEBUG -fwrapv -g0"
"""Python's own, without information for debuggers, which doubles the time."""


def main(files: Sequence[str]) -> int:
    """Compile ``files``."""
    warnings.filterwarnings("ignore", category=UserWarning)
    config = f"--config-file={Path(__file__).with_name('mypy.ini')}"
    os.environ["CFLAGS"] = f"{os.environ.get('CFLAGS', '')} {_FLAGS}".strip()
    extensions = mypycify(
        [*files, config],
        opt_level="2",
        multi_file=True,
        target_dir="build",
        group_name=GROUP,
    )
    CCompiler.compile = _compile  # type: ignore[assignment, method-assign]
    distribution = Distribution({"name": GROUP, "ext_modules": extensions})
    command = distribution.get_command_obj("build_ext")
    command.inplace = True
    command.ensure_finalized()
    command.run()
    return 0


def _compile(
    self: CCompiler, sources: Sequence[str], output_dir: str | None = None, *args: Any, **named: Any
) -> list[str]:
    """Compile the files of one library side by side, where setuptools takes one after the other."""
    one_by_one = _ONE_BY_ONE
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda one: one_by_one(self, [one], output_dir, *args, **named), sources)
        return [name for names in made for name in names]


_ONE_BY_ONE: Final = CCompiler.compile


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
