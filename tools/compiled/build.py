"""A tree of the services' packages with the hot modules compiled beside their sources.

Python imports an extension module before a source file of the same name and folder, so that the
tree is used by being put first on PYTHONPATH. Trees are kept by the hash of all that goes into
them.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Python by which and for which a tree is compiled: an extension module fits one minor release
    on one platform.
    """

    name: str
    """Trees of interpreters with different names are kept apart."""
    argv: Sequence[str]
    """Command that runs it, with mypyc."""
    path: Sequence[Path] = ()
    """Folders of packages that are not its own: mypyc's, and what the source imports."""
    environment: Mapping[str, str] = field(default_factory=dict)


OWN: Final = Interpreter(f"{sys.implementation.cache_tag} {sys.version}", (sys.executable,))
"""The Python that runs this."""


def tree(python: Interpreter = OWN) -> Path:
    """Return the compiled tree of the source as it is, made unless it exists. Raises BuildError."""
    built = KEPT / key(python)
    with _one_at_a_time():
        if not (built / _MADE).exists():
            _build(built, python)
    return built


def key(python: Interpreter = OWN) -> str:
    """Return the hash of the packages, this build and the interpreter."""
    digest = hashlib.sha256(python.name.encode())
    for folder in (*PACKAGES, "tools/compiled"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(ROOT)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Wait for another process that builds: it may make the same tree."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / "lock").open("w", encoding="ascii") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build(built: Path, python: Interpreter) -> None:
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        raise BuildError("no C compiler: apt-get install gcc libc6-dev")
    scratch = built.with_suffix(".tmp")
    shutil.rmtree(scratch, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in PACKAGES:
        shutil.copytree(ROOT / folder, scratch / Path(folder).name, ignore=ignored)
    files = [str(path.relative_to(scratch)) for path in sources(scratch)]
    print(f"compiling {len(files)} modules into {built}", file=sys.stderr, flush=True)
    paths = os.pathsep.join(map(str, (ROOT / "tools", ROOT / "gen", *python.path)))
    environment = {**os.environ, **python.environment, "PYTHONPATH": paths}
    argv = (*python.argv, "-m", "compiled.extension", *files)
    done = subprocess.run(argv, cwd=scratch, env=environment, stdout=sys.stderr)
    if done.returncode != 0:
        raise BuildError(f"the compiler failed with exit code {done.returncode}; see above")
    shutil.rmtree(scratch / "build")
    (scratch / _MADE).touch()
    shutil.rmtree(built, ignore_errors=True)
    scratch.rename(built)
