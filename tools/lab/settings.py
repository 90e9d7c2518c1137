"""Addresses, names and paths of the lab."""

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
STATE: Final = ROOT / "build/k8s"
"""Everything that a running cluster writes. `down` removes it."""
LOGS: Final = STATE / "log"
BIN: Final = STATE / "bin"
KUBECONFIG: Final = STATE / "admin.yaml"
IMAGES: Final = ROOT / "build/images"

BRIDGE: Final = "tidemark-k8s"
HOST: Final = "10.151.0.254"
"""Address of this machine on the bridge of the nodes: API server and DNS."""
PODS: Final = "10.152.0.0/16"
SERVICES: Final = "10.153.0.0/16"
API_SERVICE: Final = "10.153.0.1"
API: Final = f"https://{HOST}:16443"
DOMAIN: Final = "cluster.local"
NODES_MAX: Final = 5
STORAGE_CLASS: Final = "local"
VOLUMES_A_NODE: Final = 4
"""A broker's and a ZooKeeper server's on each of three nodes; three brokers' on one."""


class LabError(Exception):
    """The lab cannot do what is asked. The message says why, and what to try."""


def node_name(number: int) -> str:
    """Name of a node, of its network namespace and of its cgroups."""
    return f"tidemark-k8s-{number}"


def node_address(number: int) -> str:
    """Address of a node."""
    return f"10.151.0.{number}"


def node_pods(number: int) -> str:
    """Network of a node's pods."""
    return f"10.152.{number}.0/24"


def node_directory(number: int) -> Path:
    """Directory of a node's files."""
    return STATE / f"node{number}"


def environment() -> dict[str, str]:
    """Environment of the cluster's programs, and of kubectl and helm."""
    path = f"{BIN}:{os.environ.get('PATH', '/usr/sbin:/usr/bin:/sbin:/bin')}"
    home = {"HOME": str(STATE), "PATH": path, "KUBECONFIG": str(KUBECONFIG)}
    runtime = STATE / "runtime"
    libraries = f"{runtime}/usr/lib/x86_64-linux-gnu:{runtime}/lib/x86_64-linux-gnu"
    programs = f"{runtime}/usr/sbin:{runtime}/usr/bin"
    home["XTABLES_LIBDIR"] = f"{runtime}/usr/lib/x86_64-linux-gnu/xtables"
    return {**home, "PATH": f"{path}:{programs}", "LD_LIBRARY_PATH": libraries}
