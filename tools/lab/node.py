"""Nodes: each a network, mount, process and host name namespace with a containerd, a kubelet, a
kube-proxy and cgroups of its own.
"""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from lab import processes, programs
from lab.settings import (
    BRIDGE,
    DOMAIN,
    HOST,
    KUBECONFIG,
    NODES_MAX,
    PODS,
    SERVICES,
    STATE,
    LabError,
    node_address,
    node_directory,
    node_name,
    node_pods,
)

CONTAINERD: Final = "/run/containerd/containerd.sock"
_SCRIPT: Final = Path(__file__).with_name("node.sh")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_STOP_S: Final = 30.0


def controllers() -> list[Path]:
    """Return the hierarchies of cgroups. Raises LabError on a machine that has one for all."""
    found = [path for path in sorted(_CGROUPS.iterdir()) if (path / "cgroup.procs").exists()]
    if (_CGROUPS / "cgroup.controllers").exists() or not found:
        raise LabError("the lab needs cgroups of version 1, a hierarchy for each controller")
    return [path for path in found if path.name != "unified"]


# -- the network of all nodes


def make_bridge() -> None:
    """Make the bridge that nodes are on. Nothing of the cluster's addresses leaves the machine."""
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("addr", "add", f"{HOST}/24", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")
    for network in (PODS, SERVICES):
        _ip("route", "add", "blackhole", network)


def remove_bridge() -> None:
    """Remove the bridge, and the routes to pods and Services."""
    with suppress(LabError):
        _ip("link", "del", BRIDGE)
    for network in (PODS, SERVICES):
        with suppress(LabError):
            _ip("route", "del", "blackhole", network)


def make_network(number: int, nodes: int) -> None:
    """Make the network namespace of a node, with routes to the pods of the others."""
    name, port = node_name(number), _port(number)
    _ip("netns", "add", name)
    _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
    _ip("link", "set", port, "master", BRIDGE, "up")
    _ip("-n", name, "addr", "add", f"{node_address(number)}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        _ip("-n", name, "link", "set", device, "up")
    _ip("-n", name, "route", "add", SERVICES, "via", HOST)
    for other in range(1, nodes + 1):
        if other != number:
            _ip("-n", name, "route", "add", node_pods(other), "via", node_address(other))
    _ip("route", "add", node_pods(number), "via", node_address(number))


# -- life of a node


def start(number: int) -> None:
    """Start a node: as it was before a loss of power, if it was there."""
    name, directory = node_name(number), node_directory(number)
    for path in ("cni", "containerd", "kubelet", "volumes"):
        (directory / path).mkdir(parents=True, exist_ok=True)
    _make_cgroups(name)
    for file, text in _files(number).items():
        (directory / file).write_text(text)
    settings = {
        "NODE": name,
        "NODE_IP": node_address(number),
        "ZONE": f"zone-{number}",
        "DIRECTORY": str(directory),
        "KUBECONFIG": str(KUBECONFIG),
        "IMAGES": " ".join(map(str, programs.images())),
        "CONTAINERD": CONTAINERD,
        "PODS": PODS,
    }
    environment = [f"{key}={value}" for key, value in settings.items()]
    # Not `ip netns exec`, which mounts another /sys and hides the cgroups.
    enter = ["nsenter", f"--net=/run/netns/{name}", "unshare", "--uts", "--mount", "--pid"]
    alone = ["--propagation", "private", "--fork", "--kill-child", "--mount-proc"]
    processes.start(_process(number), ["env", *environment, *enter, *alone, "bash", str(_SCRIPT)])


def kill(number: int) -> None:
    """End everything that runs on a node at once, as a loss of power does."""
    first = processes.child_of(_process(number))
    if first is None:
        raise LabError(f"node {number} is not running")
    os.kill(first, signal.SIGKILL)
    processes.wait_for(
        lambda: processes.pid_of(_process(number)) is None, "the node does not end", _STOP_S
    )
    with suppress(LabError):
        _ip("-n", node_name(number), "link", "del", "cni0")


def cut(number: int) -> None:
    """Take a node off the network."""
    _ip("link", "set", _port(number), "down")


def heal(number: int) -> None:
    """Put a node back on the network."""
    _ip("link", "set", _port(number), "up")


def inside(number: int, *argv: str) -> str:
    """Run a program in the namespaces of a node, and return what it printed."""
    return processes.run("nsenter", *_namespaces(number), "-p", "--", *argv)


def start_inside(number: int, name: str, *argv: str) -> None:
    """Start a program on a node, in the background. It has to be ended before the node."""
    processes.start(name, ["nsenter", *_namespaces(number), "--", *argv])


def load(number: int, images: Sequence[Path]) -> None:
    """Load archives of images into a node."""
    for image in images:
        argv = ("ctr", "-a", CONTAINERD, "-n", "k8s.io", "images", "import", str(image))
        inside(number, *argv)


def running() -> list[int]:
    """Numbers of the nodes that run."""
    numbers = range(1, NODES_MAX + 1)
    return [number for number in numbers if processes.pid_of(_process(number)) is not None]


def remove(number: int) -> None:
    """End a node, and remove its network and its cgroups."""
    first = processes.child_of(_process(number))
    if first is not None:
        with suppress(ProcessLookupError):
            os.kill(first, signal.SIGKILL)
    processes.stop(_process(number), signal.SIGKILL)
    for command in (("netns", "del", node_name(number)), ("link", "del", _port(number))):
        with suppress(LabError):
            _ip(*command)
    with suppress(LabError):
        _ip("route", "del", node_pods(number))
    processes.wait_for(
        lambda: _cgroups_removed(node_name(number)), "cgroups of the node stay", _STOP_S
    )


# -- parts


def _namespaces(number: int) -> tuple[str, ...]:
    first = processes.child_of(_process(number))
    if first is None:
        raise LabError(f"node {number} is not running")
    return ("-t", str(first), "-m", "-u", "-n")


def _process(number: int) -> str:
    return f"node{number}"


def _port(number: int) -> str:
    return f"{BRIDGE}-{number}"


def _ip(*words: str) -> None:
    processes.run("ip", *words)


def _make_cgroups(name: str) -> None:
    for controller in controllers():
        (controller / name).mkdir(exist_ok=True)
        if controller.name == "cpuset":
            for file in ("cpuset.cpus", "cpuset.mems"):
                (controller / name / file).write_text((controller / file).read_text())
        if controller.name in ("memory", "freezer", "cpuacct"):
            (controller / name / "host").mkdir(exist_ok=True)


def _cgroups_removed(name: str) -> bool:
    left = False
    for controller in _CGROUPS.iterdir():
        for directory, _, _ in os.walk(controller / name, topdown=False):
            with suppress(OSError):
                Path(directory).rmdir()
        left = left or (controller / name).exists()
    return not left


def _files(number: int) -> dict[str, str]:
    directory, name = node_directory(number), node_name(number)
    return {
        "containerd.toml": _CONTAINERD_TOML.format(
            directory=directory,
            socket=CONTAINERD,
            pause=programs.PAUSE,
            plugins=STATE / "runtime/usr/lib/cni",
        ),
        "cni/lab.conflist": _CNI.format(pods=node_pods(number)),
        "kubelet.yaml": _KUBELET.format(
            directory=directory, name=name, socket=CONTAINERD, dns=HOST, domain=DOMAIN
        ),
        "resolv.conf": "",
    }


_CONTAINERD_TOML: Final = """\
version = 2
root = "{directory}/containerd"
state = "/run/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{directory}/cni"
"""
_CNI: Final = """\
{{"cniVersion": "0.4.0", "name": "lab", "plugins": [{{"type": "bridge", "bridge": "cni0",
 "isGateway": true, "ipMasq": false, "hairpinMode": true,
 "ipam": {{"type": "host-local", "dataDir": "/var/lib/cni/ipam",
 "ranges": [[{{"subnet": "{pods}"}}]], "routes": [{{"dst": "0.0.0.0/0"}}]}}}},
 {{"type": "portmap", "snat": true, "capabilities": {{"portMappings": true}}}}]}}
"""
_KUBELET: Final = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://{socket}
cgroupDriver: cgroupfs
cgroupRoot: /{name}
failCgroupV1: false
failSwapOn: false
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
clusterDNS: [{dns}]
clusterDomain: {domain}
resolvConf: {directory}/resolv.conf
nodeStatusUpdateFrequency: 4s
nodeLeaseDurationSeconds: 12
makeIPTablesUtilChains: false
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {{nodefs.available: "1%", imagefs.available: "1%", memory.available: 50Mi}}
"""
