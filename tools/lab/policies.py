"""Network policies, which the bridge plugin does not enforce: kube-router's controller for them on
each node, built from the Go modules of ``tools/policies``.
"""

from typing import Final

import k8s_tools
from lab import node, processes
from lab.settings import KUBECONFIG, NODES_MAX, ROOT, SERVICES, node_name

_MODULE: Final = ROOT / "tools/policies"


def enforce() -> None:
    """Enforce policies on every node that runs, from when a pod is made or a policy changed.
    The first time the program is built, which takes some minutes.
    """
    program = k8s_tools.program("policies", _MODULE)
    for number in node.running():
        argv = (str(program), str(KUBECONFIG), node_name(number), SERVICES)
        node.start_inside(number, _process(number), *argv)


def stop() -> None:
    """Enforce no policy any more."""
    running = node.running()
    for number in range(1, NODES_MAX + 1):
        was_there = processes.pid_of(_process(number)) is not None
        processes.stop(_process(number))
        if was_there and number in running:
            for words in (("-F",), ("-X",)):  # nothing else has rules in this table
                node.inside(number, "iptables", "-t", "filter", *words)


def _process(number: int) -> str:
    return f"policies{number}"
