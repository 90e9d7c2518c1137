"""The Prometheus operator beside the control plane, and an image of the programs that run in its
pods, built from the Go modules of ``tools/prometheus-operator`` and ``tools/prometheus``.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Final

import k8s_tools
from images.archive import Image, write_archive
from images.tree import write_layer
from lab import node, processes
from lab.settings import ROOT, STATE

IMAGE: Final = "localhost/prometheus:1"
"""Prometheus, and the operator's reloader. A pod has to name the command."""
VERSION: Final = "3.5.0"
"""Of Prometheus, by which the operator knows its options; its Go module is v0.305.0."""
PROMETHEUS: Final = "/bin/prometheus"
RELOADER: Final = "/bin/prometheus-config-reloader"
_PROGRAMS: Final = "github.com/prometheus-operator/prometheus-operator/cmd"
_MODULE: Final = "github.com/prometheus-operator/prometheus-operator"
_MODULES: Final = ROOT / "tools/prometheus-operator"
_SERVER_MODULES: Final = ROOT / "tools/prometheus"
_SERVER: Final = "github.com/prometheus/prometheus/cmd/prometheus"
_KINDS: Final = "example/prometheus-operator-crd"
_PROCESS: Final = "prometheus-operator"


def start() -> None:
    """Define the kinds, load the image into the nodes that run, and start the operator. The first
    time its programs are built, which takes some minutes. Raises LabError, ToolError.
    """
    stop()
    operator = k8s_tools.program("operator", _MODULES, f"{_PROGRAMS}/operator")
    image = STATE / "prometheus.tar"
    _write_image(image)
    for number in node.running():
        node.load(number, [image])
    kinds = str(k8s_tools.module_directory(_MODULE, _MODULES) / _KINDS)
    # On the server: they are larger than the annotation in which kubectl would keep them.
    processes.run("kubectl", "apply", "--server-side", "--force-conflicts", "-f", kinds)
    processes.run("kubectl", "wait", "--for=condition=Established", "-f", kinds)
    listen = "--web.listen-address=127.0.0.1:0"
    reloader = f"--prometheus-config-reloader={IMAGE}"
    processes.start(_PROCESS, [str(operator), listen, reloader])


def stop() -> None:
    """End the operator. What it made, and the kinds, stay."""
    processes.stop(_PROCESS)


def _write_image(path: Path) -> None:
    server = k8s_tools.program("prometheus", _SERVER_MODULES, _SERVER)
    reloader = k8s_tools.program("reloader", _MODULES, f"{_PROGRAMS}/prometheus-config-reloader")
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "root"
        (root / "bin").mkdir(parents=True)
        for program, place in ((server, PROMETHEUS), (reloader, RELOADER)):
            shutil.copy(program, root / place.removeprefix("/"))
        layer = write_layer(root, Path(scratch) / "layer.tar")
        write_archive(Image(IMAGE, [layer], "65534:65534", [PROMETHEUS], {}, {}), path)
