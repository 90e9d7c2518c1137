"""A tree of the services' packages with the hot modules compiled beside their sources.

Python imports an extension module before a source file of the same name and folder, so that the
tree is used by being put first on PYTHONPATH. Trees are kept by the hash of all that goes into
them.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from compiled.modules import sources

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / "build" / "compiled"
PACKAGES: Final = (
    "lib/tidemark",
    "services/broker/broker",
    "services/controller/controller",
    "services/txn-coordinator/txn_coordinator",
    "services/share-coordinator/share_coordinator",
)
_MADE: Final = ".made"


class BuildError(Exception):
    """A compiled tree could not be made."""


def tree() -> Path:
    """Return the compiled tree of the source as it is, made unless it exists. Raises BuildError."""
    built = KEPT / key()
    if not (built / _MADE).exists():
        _build(built)
    return built


def key() -> str:
    """Return the hash of the packages, this build and the interpreter."""
    digest = hashlib.sha256(f"{sys.implementation.cache_tag} {sys.version}".encode())
    for folder in (*PACKAGES, "tools/compiled"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(ROOT)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _build(built: Path) -> None:
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        raise BuildError("no C compiler: apt-get install gcc libc6-dev")
    scratch = built.with_suffix(".tmp")
    shutil.rmtree(scratch, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in PACKAGES:
        shutil.copytree(ROOT / folder, scratch / Path(folder).name, ignore=ignored)
    files = [str(path.relative_to(scratch)) for path in sources(scratch)]
    print(f"compiling {len(files)} modules into {built}", file=sys.stderr, flush=True)
    paths = (ROOT / "tools", ROOT / "gen")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    argv = (sys.executable, "-m", "compiled.extension", *files)
    done = subprocess.run(argv, cwd=scratch, env=environment, stdout=sys.stderr)
    if done.returncode != 0:
        raise BuildError(f"the compiler failed with exit code {done.returncode}; see above")
    shutil.rmtree(scratch / "build")
    (scratch / _MADE).touch()
    shutil.rmtree(built, ignore_errors=True)
    scratch.rename(built)
