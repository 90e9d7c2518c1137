"""cert-manager's controllers for issuers of the types CA and SelfSigned, beside the control plane,
built from the Go modules of ``tools/cert-manager``.
"""

import json
import subprocess
from pathlib import Path
from typing import Final

import k8s_tools
from lab import processes
from lab.settings import KUBECONFIG, ROOT, LabError

_MODULES: Final = ROOT / "tools/cert-manager"
_MODULE: Final = "github.com/cert-manager/cert-manager"
_PROCESS: Final = "cert-manager"


def start() -> None:
    """Define the kinds, and start the controllers. The first time they are built, which takes some
    minutes. Raises LabError, ToolError.
    """
    stop()
    kinds = str(_directory() / "deploy/crds")
    # On the server: they are larger than the annotation in which kubectl would keep them.
    processes.run("kubectl", "apply", "--server-side", "--force-conflicts", "-f", kinds)
    processes.run("kubectl", "wait", "--for=condition=Established", "-f", kinds)
    processes.start(_PROCESS, [str(k8s_tools.program("cert-manager", _MODULES)), str(KUBECONFIG)])


def stop() -> None:
    """End the controllers. What they made, and the kinds, stay."""
    processes.stop(_PROCESS)


def _directory() -> Path:
    """Return the directory of cert-manager's module."""
    argv = ("go", "mod", "download", "-json", _MODULE)
    found = subprocess.run(argv, cwd=_MODULES, capture_output=True, text=True, check=False)
    if found.returncode:
        raise LabError(f"{_MODULE} was not downloaded: {(found.stderr or found.stdout).strip()}")
    return Path(json.loads(found.stdout)["Dir"])
