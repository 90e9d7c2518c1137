"""cert-manager's controllers for issuers of the types CA and SelfSigned, beside the control plane,
built from the Go modules of ``tools/cert-manager``.
"""

from typing import Final

import k8s_tools
from lab import processes
from lab.settings import KUBECONFIG, ROOT

_MODULES: Final = ROOT / "tools/cert-manager"
_MODULE: Final = "github.com/cert-manager/cert-manager"
_PROCESS: Final = "cert-manager"


def start() -> None:
    """Define the kinds, and start the controllers. The first time they are built, which takes some
    minutes. Raises LabError, ToolError.
    """
    stop()
    kinds = str(k8s_tools.module_directory(_MODULE, _MODULES) / "deploy/crds")
    # On the server: they are larger than the annotation in which kubectl would keep them.
    processes.run("kubectl", "apply", "--server-side", "--force-conflicts", "-f", kinds)
    processes.run("kubectl", "wait", "--for=condition=Established", "-f", kinds)
    processes.start(_PROCESS, [str(k8s_tools.program("cert-manager", _MODULES)), str(KUBECONFIG)])


def stop() -> None:
    """End the controllers. What they made, and the kinds, stay."""
    processes.stop(_PROCESS)
