"""Build helm and Kubernetes from the Go modules that ``tools/k8s/go.mod`` pins and ``go.sum``
hashes.

Programs are kept in the user's cache, under a name with the hash of what they are built from: every
clone of the same sources uses them. The first build of helm takes about four CPU minutes, that of
Kubernetes, which only the lab needs, about twenty.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
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
    flags = [f"-X {_HELM}/internal/version.version={_version(_HELM)}"]
    for package in ("lint/rules", "chartutil"):
        flags.append(f"-X {_HELM}/pkg/{package}.k8sVersionMajor=1")
        flags.append(f"-X {_HELM}/pkg/{package}.k8sVersionMinor={_KUBERNETES_MINOR}")
    return _built("helm", f"{_HELM}/cmd/helm", flags)


def kube() -> Path:
    """Return the path of all of Kubernetes in one program; build it if need be. Raises ToolError.

    The name that it is started by is the component: kube-apiserver, kubelet, kubectl.
    """
    flags = []
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        flags.append(f"-X {package}.gitVersion={_version('k8s.io/kubernetes')}")
        flags.append(f"-X {package}.gitMajor=1 -X {package}.gitMinor={_KUBERNETES_MINOR}")
    return _built("kube", "./kube", flags)


def pause() -> Path:
    """Return the path of the program of a pod's own container. Raises ToolError."""
    return _built("pause", "./pause", [])


def program(name: str, modules: Path, package: str = ".") -> Path:
    """Return the path of the program of a directory with ``main.go``, or of a package that its
    ``go.mod`` names as a tool; build it if it is not there yet. Raises ToolError.
    """
    content = hashlib.sha256()
    for source in ("go.mod", "go.sum", *(("main.go",) if package == "." else ())):
        content.update((modules / source).read_bytes())
    path = cache() / f"{name}-{content.hexdigest()[:16]}"
    if not path.exists():
        build(path, package, modules=modules)
    return path


def module_directory(module: str, modules: Path) -> Path:
    """Return the directory of the files of a module that the ``go.mod`` in a directory names;
    download it if need be. Raises ToolError.
    """
    _need_go()
    argv = ("go", "mod", "download", "-json", module)
    found = subprocess.run(argv, cwd=modules, capture_output=True, text=True, check=False)
    if found.returncode:
        raise ToolError(f"{module} was not downloaded: {(found.stderr or found.stdout).strip()}")
    return Path(json.loads(found.stdout)["Dir"])


def can_build() -> bool:
    """True if helm is there or can be built."""
    return _path("helm").exists() or shutil.which("go") is not None


def cache() -> Path:
    """Directory of what is built or unpacked once for all clones."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "tidemark"


def _path(name: str) -> Path:
    found = hashlib.sha256(Path(__file__).read_bytes())
    for path in (MODULES / "go.mod", MODULES / "go.sum", *sorted((MODULES / name).glob("*.go"))):
        found.update(path.read_bytes())
    return cache() / f"{name}-{found.hexdigest()[:16]}"


def _version(module: str) -> str:
    found = re.search(rf"{module} (v\S+)", (MODULES / "go.mod").read_text())
    assert found is not None, f"go.mod names {module}"
    return found[1]


def _built(name: str, package: str, flags: Sequence[str]) -> Path:
    path = _path(name)
    if not path.exists():
        build(path, package, flags)
    return path


def build(path: Path, package: str, flags: Sequence[str] = (), *, modules: Path = MODULES) -> None:
    """Build a program of the Go modules in a directory. Raises ToolError."""
    _need_go()
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    built = subprocess.run(
        [
            *("go", "build", "-trimpath", "-ldflags", " ".join(("-s", "-w", *flags))),
            *("-o", str(scratch), package),
        ],
        cwd=modules,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if built.returncode:
        raise ToolError(f"{package} was not built: {built.stderr.strip()}")
    scratch.replace(path)


def _need_go() -> None:
    if shutil.which("go") is None:
        raise ToolError("helm and Kubernetes are built from Go modules: install Go 1.24 or newer")


if __name__ == "__main__":
    try:
        print(helm())
    except ToolError as error:
        sys.exit(f"k8s_tools: {error}")
