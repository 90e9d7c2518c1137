"""A Kubernetes cluster on this machine, for tests: real components, nodes that are namespaces.

python -m lab up [--nodes N]    start a cluster; the first time programs are built
python -m lab down              end it; nothing is left
python -m lab status            nodes, pods and volumes
python -m lab kill|start N      loss of power of node N, and its return
python -m lab cut|heal N        node N off the network, and back
python -m lab enforce           enforce network policies on the nodes that run
python -m lab cert-manager      start cert-manager, for issuers of the types CA and SelfSigned
python -m lab prometheus-operator  start the Prometheus operator, with an image of Prometheus
python -m lab run COMMAND...    kubectl or helm with the cluster's configuration
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

import k8s_tools
from images.debian import PackageError
from lab import (
    cert_manager,
    control_plane,
    node,
    policies,
    processes,
    programs,
    prometheus_operator,
)
from lab.settings import BIN, KUBECONFIG, NODES_MAX, STATE, LabError, environment

_NEEDED: Final = ("ip", "nsenter", "unshare", "mount", "dpkg-deb", "apt-get")


def up(nodes: int) -> None:
    """Start a cluster, and wait until pods can be made."""
    if STATE.exists():
        raise LabError(f"a cluster is up, or its start failed: run make k8s-down ({STATE})")
    if os.geteuid() != 0:
        raise LabError("the lab needs root: namespaces, mounts and cgroups")
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    if missing:
        raise LabError(f"missing: {', '.join(missing)} (iproute2, util-linux, dpkg, apt)")
    node.controllers()
    STATE.mkdir(parents=True)
    programs.install()
    programs.images()
    begun = time.monotonic()
    node.make_bridge()
    control_plane.write_keys()
    control_plane.start_api()
    for number in range(1, nodes + 1):
        node.make_network(number, nodes)
        node.start(number)
    control_plane.start_rest()
    control_plane.wait_ready(nodes)
    control_plane.offer_volumes(nodes)
    print(f"{nodes} nodes are ready after {time.monotonic() - begun:.0f} s")
    print(f"export KUBECONFIG={KUBECONFIG} PATH={BIN}:$PATH")


def down() -> None:
    """End the cluster, and remove all that it made."""
    if not STATE.exists():
        return
    policies.stop()
    cert_manager.stop()
    prometheus_operator.stop()
    for number in range(1, NODES_MAX + 1):
        node.remove(number)
    for name in control_plane.NAMES:
        processes.stop(name)
    node.remove_bridge()
    shutil.rmtree(STATE)


def status() -> None:
    """Print nodes, pods and volumes."""
    if not STATE.exists():
        raise LabError("no cluster is up: run make k8s-up")
    for words in (("nodes",), ("pods", "-A", "-o", "wide"), ("pv",)):
        print(processes.run("kubectl", "get", *words))


def load() -> None:
    """Load the images again into every node. Pods that are made from then on run them."""
    for number in node.running():
        node.load(number, programs.images())


def run(words: Sequence[str]) -> int:
    """Run a program with the cluster's configuration."""
    return subprocess.run(words, env=environment(), check=False).returncode


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="lab", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up").add_argument(
        "--nodes", type=int, choices=range(1, NODES_MAX + 1), default=4
    )
    for name in ("down", "status", "load", "enforce", "cert-manager", "prometheus-operator"):
        commands.add_parser(name)
    for name in ("kill", "start", "cut", "heal"):
        commands.add_parser(name).add_argument("number", type=int)
    commands.add_parser("run").add_argument("words", nargs=argparse.REMAINDER)
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Run a command of the lab."""
    options = _arguments(argv)
    of_all: dict[str, Callable[[], None]] = {
        "down": down,
        "status": status,
        "load": load,
        "enforce": policies.enforce,
        "cert-manager": cert_manager.start,
        "prometheus-operator": prometheus_operator.start,
    }
    of_nodes: dict[str, Callable[[int], None]] = {
        "kill": node.kill,
        "start": node.start,
        "cut": node.cut,
        "heal": node.heal,
    }
    try:
        if options.command == "up":
            up(options.nodes)
        elif options.command in of_all:
            of_all[options.command]()
        elif options.command == "run":
            return run(options.words)
        else:
            of_nodes[options.command](options.number)
    except (LabError, PackageError, k8s_tools.ToolError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
