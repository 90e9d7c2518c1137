"""Programs and images of the lab: Kubernetes and helm from Go modules, the runtime of containers
from Debian's packages, which are unpacked and not installed.
"""

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Final

import k8s_tools
from images.archive import Image, write_archive
from images.debian import Archive, unpack
from images.tree import write_layer
from lab.settings import BIN, IMAGES, STATE, LabError

COMPONENTS: Final = (
    *("kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    *("kubelet", "kube-proxy", "kubectl"),
)
PAUSE: Final = "localhost/pause:1"
_DEBIAN: Final = (
    *("containerd", "runc", "containernetworking-plugins", "etcd-server", "nftables"),
    *("libseccomp2", "libnftables1", "libnftnl11", "libmnl0", "libjansson4", "libedit2"),
    *("libgmp10", "libbsd0", "libmd0", "libxtables12", "libtinfo6"),
    # Of the network plugin that forwards ports of a node to pods.
    *("iptables", "libip4tc2", "libip6tc2", "libnfnetlink0", "libnetfilter-conntrack3"),
    # Of the controller of network policies.
    *("ipset", "libipset13"),
)

_XTABLES: Final = ("iptables", "iptables-save", "iptables-restore", "ip6tables")


def install() -> None:
    """Put the programs below the state directory. The first time they are built, which is slow."""
    BIN.mkdir(parents=True)
    kube, helm = k8s_tools.kube(), k8s_tools.helm()
    for name in COMPONENTS:
        (BIN / name).symlink_to(kube)
    (BIN / "helm").symlink_to(helm)
    (STATE / "runtime").symlink_to(_runtime())
    _write_pause(STATE / "pause.tar")


def images() -> list[Path]:
    """Return the archives that every node loads. Raises LabError without those of `make images`."""
    ours = [IMAGES / "tidemark.tar", IMAGES / "zookeeper.tar"]
    missing = [path for path in ours if not path.exists()]
    if missing:
        raise LabError(f"{missing[0]} is missing: run make images ARGS='tidemark zookeeper'")
    return [STATE / "pause.tar", *ours]


def _runtime() -> Path:
    """Return the directory with the runtime of containers and etcd."""
    debs = k8s_tools.cache() / "debs"
    debs.mkdir(parents=True, exist_ok=True)
    archive = Archive(debs)
    releases = [archive.release(name) for name in _DEBIAN]
    name = hashlib.sha256(" ".join(releases).encode()).hexdigest()[:16]
    path = k8s_tools.cache() / f"runtime-{name}"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            root = Path(scratch) / "root"
            root.mkdir()
            unpack(archive.fetch(releases), root)
            for program in _XTABLES:  # Debian's packages do it when installed
                (root / "usr/sbin" / program).symlink_to("xtables-nft-multi")
            root.rename(path)
    return path


def _write_pause(path: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "root"
        root.mkdir()
        shutil.copy(k8s_tools.pause(), root / "pause")
        (root / "pause").chmod(0o755)
        layer = write_layer(root, Path(scratch) / "layer.tar")
        write_archive(Image(PAUSE, [layer], "65535:65535", ["/pause"], {}, {}), path)
