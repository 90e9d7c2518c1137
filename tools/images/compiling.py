"""The compiled build in the image of the services: made by the image's Python, for it.

Names and data for debuggers are left out, so that the image is no larger than an interpreted one.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from compiled.build import ROOT, BuildError, Interpreter, tree

from images import debian, rootfs

_MYPYC: Final = (
    *("mypy", "mypy-extensions", "typing-extensions", "pathspec", "librt", "ast-serialize"),
    *("setuptools", "grpc-stubs", "types-protobuf"),
)
"""What compiles, of requirements/dev.txt: mypyc and the types that it checks with."""
_UNSTRIPPED: Final = ("lz4", "uvloop", "zstandard")
"""Wheels whose modules are data for debuggers by nine tenths."""
_LOADED: Final = "import broker.core.partition; from tidemark.runtime.build import build_text"


def add_compiled(root: Path, work: Path, headers: Sequence[Path]) -> None:
    """Put the extension modules beside their sources in ``root``.

    ``work`` has the unpacked layers of Debian's packages and the wheels, ``headers`` the packages
    with Python's headers. Raises BuildError.
    """
    work = work.absolute()  # mypyc runs in another directory
    python = _interpreter(work, headers)
    built = tree(python)
    for module in sorted(built.rglob("*.so")):
        target = root / rootfs.CODE / module.relative_to(built)
        if not target.parent.is_dir():
            continue  # a package that the image does not have
        # Half of a module is names of static functions, which only a profiler wants.
        _strip(module, target)
        target.chmod(0o644)
    _check(python, root.absolute() / rootfs.CODE, work / "wheels" / rootfs.SITE)


def strip_wheels(site: Path) -> None:
    """Drop the data for debuggers from the wheels in ``site``. Raises BuildError."""
    for name in _UNSTRIPPED:
        for module in sorted((site / name).rglob("*.so")):
            _strip(module, module)


def _strip(module: Path, target: Path) -> None:
    try:
        subprocess.run(["strip", "--strip-unneeded", "-o", target, module], check=True)
    except FileNotFoundError:
        raise BuildError("no strip: apt-get install binutils") from None


def _interpreter(work: Path, headers: Sequence[Path]) -> Interpreter:
    """Return the image's Python with the wheels of the image and with mypyc."""
    root, mypyc = rootfs.new_root(work / "headers"), rootfs.new_root(work / "mypyc")
    debian.unpack(headers, root)
    rootfs.install_wheels(mypyc, ROOT / "requirements/dev.txt", only=_MYPYC)
    include = root / "usr/include"
    return Interpreter(
        name=f"image {' '.join(sorted(path.name for path in headers))}",
        argv=rootfs.python_argv(work / "base", work / "python"),
        path=(mypyc / rootfs.SITE, work / "wheels" / rootfs.SITE),
        environment={
            "PYTHONHOME": str(work / "python/usr"),
            "CFLAGS": f"-I{include} -I{include / 'python3.11'}",
        },
    )


def _check(python: Interpreter, code: Path, wheels: Path) -> None:
    """Load the modules as the image would: its libraries may be older than this machine's."""
    path = os.pathsep.join(map(str, (code, wheels)))
    ran = subprocess.run(
        [*python.argv, "-c", f"{_LOADED}; print(build_text())"],
        env={**python.environment, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode or not ran.stdout.startswith("compiled"):
        raise BuildError(
            f"the image's Python does not load the compiled modules: {ran.stdout}{ran.stderr}\n"
            "build on a machine whose C library is not newer than Debian 12's"
        )
