"""Build helm from the Go modules that ``tools/k8s/go.mod`` pins and ``go.sum`` hashes.

The program is kept in the user's cache, under a name with the hash of those files: every clone of
the same modules uses it. The first build takes about four CPU minutes.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

MODULES: Final = Path(__file__).with_name("k8s")
_HELM: Final = "helm.sh/helm/v3"
# Otherwise helm assumes Kubernetes 1.20, and refuses charts that need a newer release.
_KUBERNETES_MINOR: Final = "34"


class ToolError(Exception):
    """A tool cannot be built. The message says what is missing."""


def helm() -> Path:
    """Return the path of helm; build it if it is not there yet. Raises ToolError."""
    path = _cache() / f"helm-{_digest()}"
    if not path.exists():
        _build(path)
    return path


def can_build() -> bool:
    """True if helm is there or can be built."""
    return (_cache() / f"helm-{_digest()}").exists() or shutil.which("go") is not None


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "tidemark"


def _digest() -> str:
    found = hashlib.sha256(Path(__file__).read_bytes())
    for name in ("go.mod", "go.sum"):
        found.update((MODULES / name).read_bytes())
    return found.hexdigest()[:16]


def _version() -> str:
    found = re.search(rf"{_HELM} (v\S+)", (MODULES / "go.mod").read_text())
    assert found is not None, "go.mod names helm"
    return found[1]


def _build(path: Path) -> None:
    if shutil.which("go") is None:
        raise ToolError("helm is built from Go modules: install Go 1.24 or newer")
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    flags = [f"-X {_HELM}/internal/version.version={_version()}"]
    for package in ("lint/rules", "chartutil"):
        flags.append(f"-X {_HELM}/pkg/{package}.k8sVersionMajor=1")
        flags.append(f"-X {_HELM}/pkg/{package}.k8sVersionMinor={_KUBERNETES_MINOR}")
    built = subprocess.run(
        [
            *("go", "build", "-trimpath", "-ldflags", f"-s -w {' '.join(flags)}"),
            *("-o", str(scratch), f"{_HELM}/cmd/helm"),
        ],
        cwd=MODULES,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if built.returncode:
        raise ToolError(f"helm was not built: {built.stderr.strip()}")
    scratch.replace(path)


if __name__ == "__main__":
    try:
        print(helm())
    except ToolError as error:
        sys.exit(f"k8s_tools: {error}")
