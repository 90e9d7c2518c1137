"""etcd, API server, controller manager, scheduler and DNS, on the machine itself."""

import json
import secrets
import shutil
import socket
import sys
from pathlib import Path
from typing import Final

import trustme  # of the tests' requirements
from lab import processes
from lab.settings import (
    API,
    API_SERVICE,
    DOMAIN,
    HOST,
    KUBECONFIG,
    SERVICES,
    STATE,
    STORAGE_CLASS,
    VOLUMES_A_NODE,
    node_directory,
    node_name,
)

NAMES: Final = ("dns", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")
"""In the order in which they are ended."""
_KEYS: Final = STATE / "keys"
_VOLUMES: Final = STATE / "volumes.yaml"
_READY_S: Final = 300.0
_TOLERATION_S: Final = 30
"""Time for which a pod stays bound to a dead node; Kubernetes' default is 300 s."""
_HEARTBEAT_S: Final = 20
"""Time without a heartbeat after which a node is not ready; Kubernetes' default is 50 s."""


def write_keys() -> None:
    """Write certificates, the token of the only user, and the kubeconfig."""
    _KEYS.mkdir()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(_KEYS / "ca.crt")
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
    server = authority.issue_cert(
        *names, f"kubernetes.default.svc.{DOMAIN}", HOST, API_SERVICE, "127.0.0.1"
    )
    server.cert_chain_pems[0].write_to_path(_KEYS / "api.crt")
    server.private_key_pem.write_to_path(_KEYS / "api.key")
    authority.issue_cert("accounts.lab").private_key_pem.write_to_path(_KEYS / "accounts.key")
    token = secrets.token_hex(16)
    _write_secret(_KEYS / "tokens.csv", f"{token},admin,admin,system:masters\n")
    _write_secret(
        KUBECONFIG,
        f"""\
apiVersion: v1
kind: Config
clusters: [{{name: lab, cluster: {{server: "{API}", certificate-authority: {_KEYS}/ca.crt}}}}]
users: [{{name: admin, user: {{token: {token}}}}}]
contexts: [{{name: lab, context: {{cluster: lab, user: admin}}}}]
current-context: lab
""",
    )


def start_api() -> None:
    """Start etcd and the API server."""
    data = ["--data-dir", str(STATE / "etcd"), "--unsafe-no-fsync"]
    etcd, peers = (f"http://127.0.0.1:{port}" for port in _free_ports(2))
    clients = ["--listen-client-urls", etcd, "--advertise-client-urls", etcd]
    processes.start("etcd", ["etcd", *data, *clients, "--listen-peer-urls", peers])
    accounts = _KEYS / "accounts.key"
    options = {
        "etcd-servers": etcd,
        "bind-address": HOST,
        "advertise-address": HOST,
        "secure-port": "16443",
        "service-cluster-ip-range": SERVICES,
        "tls-cert-file": _KEYS / "api.crt",
        "tls-private-key-file": _KEYS / "api.key",
        "client-ca-file": _KEYS / "ca.crt",
        "token-auth-file": _KEYS / "tokens.csv",
        "authorization-mode": "RBAC",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-signing-key-file": accounts,
        "service-account-key-file": accounts,
        "kubelet-preferred-address-types": "InternalIP",
        "default-not-ready-toleration-seconds": _TOLERATION_S,
        "default-unreachable-toleration-seconds": _TOLERATION_S,
    }
    _start("kube-apiserver", options)


def start_rest() -> None:
    """Wait for the API server; start what works through it."""
    processes.wait_for(
        lambda: processes.succeeds("kubectl", "get", "--raw", "/readyz"), "no API server", _READY_S
    )
    _start(
        "kube-controller-manager",
        {
            "kubeconfig": KUBECONFIG,
            "service-account-private-key-file": _KEYS / "accounts.key",
            "root-ca-file": _KEYS / "ca.crt",
            "leader-elect": "false",
            "node-monitor-period": "2s",
            "node-monitor-grace-period": f"{_HEARTBEAT_S}s",
        },
    )
    _start("kube-scheduler", {"kubeconfig": KUBECONFIG, "leader-elect": "false"})
    dns = Path(__file__).with_name("dns.py")
    processes.start("dns", [sys.executable, str(dns), HOST, API, str(KUBECONFIG), str(_KEYS)])


def wait_ready(nodes: int) -> None:
    """Wait until all nodes are ready, and pods can be made."""

    def ready() -> bool:
        listed = processes.run("kubectl", "get", "nodes", "--no-headers").splitlines()
        return sum(line.split()[1] == "Ready" for line in listed) == nodes

    processes.wait_for(ready, "not every node is ready", _READY_S)
    processes.wait_for(
        lambda: processes.succeeds("kubectl", "get", "serviceaccount", "default"),
        "no service account",
        _READY_S,
    )


def offer_volumes(nodes: int) -> None:
    """Make the class of local volumes, and the volumes of each node."""
    manifests = [_STORAGE_CLASS.format(name=STORAGE_CLASS)]
    for node in range(1, nodes + 1):
        for number in range(1, VOLUMES_A_NODE + 1):
            path = node_directory(node) / f"volumes/{number}"
            path.mkdir(parents=True, exist_ok=True)
            name = f"{node_name(node)}-{number}"
            manifests.append(
                _VOLUME.format(name=name, path=path, node=node_name(node), storage=STORAGE_CLASS)
            )
    _VOLUMES.write_text("---\n".join(manifests))
    processes.run("kubectl", "apply", "-f", str(_VOLUMES))


def reclaim_volumes() -> None:
    """Empty the volumes whose claim was deleted, and offer them again."""
    listed = json.loads(processes.run("kubectl", "get", "pv", "-o", "json"))["items"]
    for volume in listed:
        if volume["status"]["phase"] == "Released":
            processes.run("kubectl", "delete", "pv", volume["metadata"]["name"])
            path = Path(volume["spec"]["local"]["path"])
            shutil.rmtree(path)
            path.mkdir()
    processes.run("kubectl", "apply", "-f", str(_VOLUMES))


def _free_ports(count: int) -> list[int]:
    """Return ports of the loopback address that nothing has: other clusters may run here."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _start(component: str, options: dict[str, object]) -> None:
    argv = [component, *(f"--{name}={value}" for name, value in options.items())]
    processes.start(component, argv)


def _write_secret(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


_STORAGE_CLASS: Final = """\
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: {name}
  annotations: {{storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Retain
"""
_VOLUME: Final = """\
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {name}}}
spec:
  capacity: {{storage: 10Gi}}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: {storage}
  local: {{path: {path}}}
  nodeAffinity:
    required:
      nodeSelectorTerms:
        - matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [{node}]}}]
"""
