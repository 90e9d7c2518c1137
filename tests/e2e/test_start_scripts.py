"""Start scripts of the chart in the images of `make images`: each service in a network, a process
namespace and a root directory of its own, which it cannot write, as in a pod.
"""

import http.client
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from e2e.built_images import unpacked
from e2e.netns import Network, network, why_no_networks
from helm.chart import NAMESPACE, named, rendered
from images import rootfs
from waiting import PATIENCE_S, wait_for

VALUES: Final = Path(__file__).parents[1] / "helm/values/one-node-private-network.yaml"
SERVICES: Final = ("controller", "broker", "txn-coordinator", "share-coordinator")
ROLES: Final = ("zookeeper", *SERVICES)
OPS_PORT: Final = 9392
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.root,
    pytest.mark.skipif(shutil.which("apt-get") is None, reason="images consist of Debian packages"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to enter another root directory"),
]
# The image below, what differs between pods above it; only what the chart mounts can be written.
_ENTER: Final = """\
set -e
cd "$1"; shift
mount -t tmpfs tmpfs over; mkdir over/upper over/work
cp -a files/. over/upper/
mount -t overlay overlay -o "lowerdir=$1,upperdir=over/upper,workdir=over/work" root; shift
for directory in data run/tidemark tmp; do
    mkdir -p "root/$directory"; mount -t tmpfs tmpfs "root/$directory"; done
mkdir root/data/disk0
chown -R 10001:10001 root/data root/run/tidemark root/tmp
mkdir -p root/dev; mount --rbind /dev root/dev; mount -t proc proc root/proc
mount -o remount,ro root
exec chroot --userspec=10001:10001 root "$@"
"""


class Pods:
    """A container for each role, named as the first pod of its StatefulSet."""

    def __init__(self, directory: Path, net: Network, images: dict[str, Path]) -> None:
        self._directory = directory
        self._net = net
        self._images = images
        self._manifests = rendered(VALUES)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, role: str) -> None:
        """Run the start script of a role."""
        image = "zookeeper" if role == "zookeeper" else "tidemark"
        home = self._directory / role
        for name in ("over", "root"):
            (home / name).mkdir(parents=True)
        self._write_files(home / "files/etc", role, image)
        command = ("sh", f"/etc/{image}/start.sh")
        unshare = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation=private")
        argv = [*unshare, "sh", "-c", _ENTER, "enter", str(home), str(self._images[image])]
        with (home / "log").open("wb") as log:
            self._running[role] = subprocess.Popen(
                self._net.argv(role, [*argv, *command]),
                env={**self._environment(image), "POD_NAME": f"demo-{role}-0", "NODE_NAME": "node"},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _environment(self, image: str) -> dict[str, str]:
        java = "/usr/lib/jvm/java-17-openjdk-amd64/bin:" if image == "zookeeper" else ""
        path = f"{java}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        site = f"/{rootfs.SITE}:/{rootfs.CODE}"
        return {"PATH": path, "PYTHONPATH": site, "PYTHONDONTWRITEBYTECODE": "1"}

    def _write_files(self, etc: Path, role: str, image: str) -> None:
        config = named(self._manifests, "ConfigMap", f"demo-{role}")["data"]
        (etc / image).mkdir(parents=True)
        for name, text in config.items():
            (etc / image / name).write_text(text)
        hosts = [
            f"{self._net.address(it)} demo-{it}-0.demo-{it}.{NAMESPACE}.svc.cluster.local"
            for it in ROLES
        ]
        (etc / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]))

    def answer(self, role: str, path: str) -> int:
        """HTTP status of a probe, as the kubelet asks for it; 0 without an answer."""
        with self._net.inside(role):
            connection = http.client.HTTPConnection(
                self._net.address(role), OPS_PORT, timeout=PATIENCE_S
            )
            try:
                connection.request("GET", path)
                return connection.getresponse().status
            except OSError:
                return 0
            finally:
                connection.close()

    def wait_ready(self, role: str) -> None:
        """Wait until the readiness probe of a service succeeds."""

        def look() -> bool:
            assert self._running[role].poll() is None, self.log(role)
            return self.answer(role, "/readyz") == 200

        wait_for(look, lambda: self.log(role))

    def stop(self, role: str) -> int:
        """Send SIGTERM to the first process of a container, as the kubelet does."""
        unshared = self._running[role]
        _signal_first(unshared, signal.SIGTERM)
        return unshared.wait()

    def log(self, role: str) -> str:
        """Output of a container."""
        return (self._directory / role / "log").read_text()

    def close(self) -> None:
        """End all containers."""
        for process in self._running.values():
            if process.poll() is None:
                # A process that changes its user does not end with its parent (--kill-child).
                _signal_first(process, signal.SIGKILL)
            process.kill()
            process.wait()


def _signal_first(unshared: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """Signal the first process of a container, whose end is the end of all others in it."""
    children = Path(f"/proc/{unshared.pid}/task/{unshared.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), number)


@pytest.fixture(scope="module")
def images(built: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Root directories of the images."""
    directory = tmp_path_factory.mktemp("roots")
    for name in ("tidemark", "zookeeper"):
        unpacked(built / f"{name}.tar", directory / name)
    return {name: directory / name for name in ("tidemark", "zookeeper")}


@pytest.fixture
def pods(tmp_path: Path, images: dict[str, Path]) -> Iterator[Pods]:
    if (reason := why_no_networks()) is not None:
        pytest.skip(reason)
    with ExitStack() as opened:
        made = Pods(tmp_path, opened.enter_context(network(ROLES)), images)
        opened.callback(made.close)
        yield made


@pytest.mark.feature("KU12", "KU13", "KU16")
def test_each_service_starts_by_the_charts_script_without_privileges_and_stops_at_sigterm(
    pods: Pods,
) -> None:
    for role in ROLES:
        pods.start(role)
    for role in SERVICES:
        pods.wait_ready(role)
        assert pods.answer(role, "/livez") == 200
    for role in reversed(SERVICES):
        assert pods.stop(role) == 0, pods.log(role)
