"""Images, built from Debian's packages of today and run as a container would: another root, no
privileges.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from e2e.built_images import COMPILED, unpacked
from images import rootfs
from images.__main__ import build, resolve
from images.debian import Archive

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.root,
    pytest.mark.skipif(shutil.which("apt-get") is None, reason="images consist of Debian packages"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to enter another root directory"),
]
SERVICES = ("broker", "controller", "txn-coordinator", "share-coordinator")
MIB = 2**20
PRINT_MODULE = "import broker.core.partition as module; print(module.__file__)"


def run(root: Path, environment: dict[str, str], *argv: str) -> str:
    """Run a command in the image as the user of the services."""
    proc = root / "proc"  # Java finds its libraries by it
    ran = subprocess.run(
        [
            *("unshare", "--mount", "--pid", "--fork", f"--mount-proc={proc}"),
            *("chroot", f"--userspec={rootfs.USER}:{rootfs.USER}", str(root), *argv),
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.feature("KU27")
def test_an_image_built_again_elsewhere_has_the_same_bytes(built: Path, tmp_path: Path) -> None:
    shutil.copytree(built / "debs", tmp_path / "debs")
    build(["tidemark"], tmp_path, resolve(Archive(tmp_path / "debs")), compiled=COMPILED)
    assert (tmp_path / "tidemark.tar").read_bytes() == (built / "tidemark.tar").read_bytes()


@pytest.mark.feature("KU25")
def test_the_image_of_the_services_is_small_and_runs_each_without_privileges(
    built: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    environment = unpacked(built / "tidemark.tar", root)
    assert (built / "tidemark.tar").stat().st_size < 200 * MIB
    kind = "compiled" if COMPILED else "interpreted"
    for program in ("tidemark", *(f"tidemark-{service}" for service in SERVICES)):
        said = run(root, environment, program, "--version")
        assert said.startswith(f"{program} {rootfs.release()} ({kind}, Python 3.11.")
    loaded = run(root, environment, "python3", "-c", PRINT_MODULE).strip()
    assert Path(loaded).suffix == (".so" if COMPILED else ".py")
    assert run(root, environment, "id", "-u") == f"{rootfs.USER}\n"
    assert (root / "data").stat().st_uid == rootfs.USER
    sbom = json.loads((root / "usr/share/tidemark/sbom.cdx.json").read_text())
    assert {"libc6", "python3.11-minimal", "grpcio"} <= {it["name"] for it in sbom["components"]}


@pytest.mark.feature("KU25")
def test_no_image_of_the_services_has_a_compiler_an_installer_or_a_way_to_become_root(
    built: Path, tmp_path: Path
) -> None:
    unpacked(built / "tidemark.tar", tmp_path / "root")
    files = [path for path in (tmp_path / "root").rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert not names & {"gcc", "cc", "c++", "ld", "pip", "pip3", "uv", "apt-get", "dpkg"}
    assert [path for path in files if path.stat().st_mode & 0o6000] == []


@pytest.mark.feature("KU26")
def test_the_image_of_zookeeper_runs_its_classes(built: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    environment = unpacked(built / "zookeeper.tar", root)
    classes = f"/{rootfs.JARS}/*"
    said = run(root, environment, "java", "-cp", classes, "org.apache.zookeeper.Version")
    assert said.startswith("3.")
