"""Layers of the images: base system, Python, Java, wheels, our code, ZooKeeper, Spark."""

import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
USER: Final = 10001
SITE: Final = "opt/tidemark/site"
CODE: Final = "opt/tidemark/lib"
JARS: Final = "opt/zookeeper/lib"
SPARK: Final = "opt/spark"
JAVA: Final = "usr/lib/jvm/java-17-openjdk-amd64"

# Without python3-minimal and its maintainer scripts: the interpreter, its library, what they link.
BASE_PACKAGES: Final = ("busybox", "libc6", "zlib1g")
PYTHON_PACKAGES: Final = ("python3.11-minimal", "libpython3.11-stdlib", "libstdc++6")
# Debian's dependencies of a package's configuration, which is not run.
NEEDLESS: Final = ("dpkg", "tar", "libacl1", "libselinux1", "libpcre2-8-0", "libmd0", "libzstd1")
# Without what only a desktop needs (sound, fonts, printing, smart cards), most of its dependencies.
JAVA_PACKAGES: Final = ("openjdk-17-jre-headless", "libstdc++6", "libgcc-s1", "gcc-12-base")
# Not in an image: what the modules of the compiled build are compiled with.
HEADERS_PACKAGES: Final = ("libpython3.11-dev",)
# Spark's commands, by which its Python library starts Java, too, are scripts for it.
SHELL_PACKAGES: Final = ("bash",)

_PASSWD: Final = f"root:x:0:0:root:/:/bin/sh\ntidemark:x:{USER}:{USER}::/data:/bin/sh\n"
_GROUP: Final = f"root:x:0:\ntidemark:x:{USER}:\n"
_ZOOKEEPER_JARS: Final = (
    *("zookeeper-3*", "zookeeper-jute-*", "commons-cli-*", "commons-io-*", "metrics-core-*"),
    *("slf4j-api-*", "log4j-api-*", "log4j-core-*", "log4j-slf4j2-impl-*", "snappy-java-*"),
    *(f"netty-{name}-4*" for name in ("buffer", "codec", "codec-base", "common", "handler")),
    *(f"netty-{name}-4*" for name in ("resolver", "transport", "transport-native-unix-common")),
    "netty-transport-classes-epoll-4*",
)
_OURS: Final = (
    "lib/tidemark",
    "gen/tidemark_wire",
    "services/broker/broker",
    "services/controller/controller",
    "services/txn-coordinator/txn_coordinator",
    "services/share-coordinator/share_coordinator",
)
_OURS_IN_SPARK: Final = (
    *("lib/tidemark", "gen/tidemark_wire"),
    *("spark-jobs/tidemark_spark", "spark-jobs/tidemark_jobs"),
)
_COMMAND: Final = """\
#!/usr/bin/python3.11 -P
import sys

from {module} import main

sys.exit(main())
"""
_COMMANDS: Final = {
    "tidemark": "tidemark.cli.main",
    "tidemark-broker": "broker.__main__",
    "tidemark-controller": "controller.__main__",
    "tidemark-txn-coordinator": "txn_coordinator.__main__",
    "tidemark-share-coordinator": "share_coordinator.__main__",
}


def new_root(path: Path) -> Path:
    """Return an empty root directory, with /bin and the like below /usr as in Debian."""
    shutil.rmtree(path, ignore_errors=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (path / "usr" / name).mkdir(parents=True)
        (path / name).symlink_to(f"usr/{name}")
    return path


def finish_base(root: Path) -> None:
    """Add to the base system: shell, user, empty directories that containers mount on."""
    for name in ("etc", "tmp", "data", "proc", "sys", "dev", "run", "var/tmp", "opt"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "etc/passwd").write_text(_PASSWD)
    (root / "etc/group").write_text(_GROUP)
    (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")
    applets = subprocess.run(
        [*_loader(root), str(root / "usr/bin/busybox"), "--list"],
        capture_output=True,
        text=True,
        check=True,
    )
    for name in applets.stdout.split():
        if not (root / "usr/bin" / name).exists() and not (root / "usr/sbin" / name).exists():
            (root / "usr/bin" / name).symlink_to("busybox")


def finish_python(root: Path, base: Path) -> None:
    """Add the name ``python3`` and bytecode of the standard library."""
    (root / "usr/bin/python3").symlink_to("python3.11")
    compile_all(root, base, root, ["usr/lib/python3.11"])


def finish_java(root: Path) -> None:
    """Drop what only a debugger, a manual or a desktop needs."""
    for name in (
        "usr/share/gdb",
        f"{JAVA}/man",
        "usr/share/binfmts",
        "usr/share/application-registry",
    ):
        shutil.rmtree(root / name, ignore_errors=True)


def compile_all(root: Path, base: Path, python: Path, directories: Iterable[str]) -> None:
    """Compile Python below directories of ``root`` by the Python of the image.

    Root file systems are read-only, so that no later start could keep what it compiles. Paths in
    the bytecode are those in the image, and Python does not compare it with the sources.
    """
    subprocess.run(
        [
            *python_argv(base, python),
            *("-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash"),
            *("-s", str(root), "-p", "/"),
            *(str(root / name) for name in directories),
        ],
        check=True,
        # One seed for hashes: sets are written in the order of their hashes.
        env={"PYTHONHOME": str(python / "usr"), "PYTHONHASHSEED": "0", "PATH": os.defpath},
    )


def python_argv(base: Path, python: Path) -> list[str]:
    """Command that runs the image's Python here; it needs PYTHONHOME, too."""
    return [*_loader(base, python), str(python / "usr/bin/python3.11"), "-S"]


def _loader(*roots: Path) -> list[str]:
    """Command that runs a program of an image here, with the image's libraries."""
    libraries = ":".join(str(root / "usr/lib/x86_64-linux-gnu") for root in roots)
    return [str(roots[0] / "usr/lib64/ld-linux-x86-64.so.2"), "--library-path", libraries]


def install_wheels(root: Path, lock: Path, *, only: Sequence[str] = ()) -> list[str]:
    """Install the wheels of a lock file with hashes, or some of them. Returns ``name==version``."""
    requirements = _requirements(lock.read_text(), only)
    path = root.with_suffix(".txt")
    path.write_text("".join(requirements.values()))
    subprocess.run(
        [
            *(str(ROOT / ".venv/bin/uv"), "pip", "install", "--quiet", "--no-deps"),
            *("--target", str(root / SITE), "--require-hashes", "--only-binary", ":all:"),
            *("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_36"),
            *("--link-mode", "copy", "--no-compile-bytecode", "-r", str(path)),
        ],
        check=True,
    )
    _drop(root / SITE, ("tests", "test", "include", "bin"))
    for path in (root / SITE).glob("*.dist-info/*"):
        if path.name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"):
            path.unlink()
    for name in (".lock", "CACHEDIR.TAG"):
        (root / SITE / name).unlink(missing_ok=True)
    return sorted(requirements)


def _requirements(text: str, only: Sequence[str]) -> dict[str, str]:
    """Blocks of a lock file by ``name==version``, without those for other systems."""
    blocks: dict[str, str] = {}
    release = ""
    for line in text.splitlines(keepends=True):
        if line[:1].isalnum():
            release, _, marker = line.partition(" ")
            if "win32" in marker or (only and release.partition("==")[0] not in only):
                release = ""
        elif line.lstrip().startswith("#"):
            continue
        if release:
            blocks[release] = blocks.get(release, "") + line
    return blocks


def _drop(site: Path, names: Sequence[str]) -> None:
    """Remove what only building and testing need."""
    for package in [site, *(path for path in site.iterdir() if path.is_dir())]:
        for name in names:
            shutil.rmtree(package / name, ignore_errors=True)


def add_our_code(root: Path) -> None:
    """Copy the services and the command line, with their commands."""
    _copy(root, _OURS)
    for name, module in _COMMANDS.items():
        path = root / "usr/bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_COMMAND.format(module=module))
        path.chmod(0o755)


def _copy(root: Path, folders: Iterable[str]) -> None:
    kept = shutil.ignore_patterns("__pycache__", "*.pyi", "*.egg-info")
    for folder in folders:
        shutil.copytree(ROOT / folder, root / CODE / Path(folder).name, ignore=kept)
    metadata = root / CODE / f"tidemark-{release()}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: tidemark\nVersion: {release()}\n")


def add_zookeeper(root: Path, pyspark: Path) -> str:
    """Copy ZooKeeper's jars out of PySpark. Returns ZooKeeper's release."""
    target = root / JARS
    target.mkdir(parents=True)
    for pattern in _ZOOKEEPER_JARS:
        found = list((pyspark / "jars").glob(f"{pattern}.jar"))
        if not found:
            raise FileNotFoundError(f"{pattern}.jar is not in {pyspark / 'jars'}")
        for path in found:
            if not path.stem.endswith(("aarch_64", "riscv64")):
                shutil.copyfile(path, target / path.name)
    return next(target.glob("zookeeper-3*.jar")).stem.removeprefix("zookeeper-")


def add_pyspark(root: Path, pyspark: Path) -> str:
    """Copy PySpark, which has no wheel, as it was installed here. Returns its release."""
    left_out = shutil.ignore_patterns("__pycache__", "tests", "examples")
    shutil.copytree(pyspark, root / SITE / "pyspark", ignore=left_out)
    return next(pyspark.parent.glob("pyspark-*.dist-info")).stem.removeprefix("pyspark-")


def add_spark(root: Path) -> None:
    """Copy the data source and the jobs, and give Spark its usual name."""
    _copy(root, _OURS_IN_SPARK)
    shutil.copytree(ROOT / "spark-jobs/jobs", root / "opt/tidemark/jobs")
    for path in (root / "opt/tidemark/jobs").rglob("__pycache__"):
        shutil.rmtree(path)
    (root / SPARK).symlink_to(f"/{SITE}/pyspark")


def release() -> str:
    """Return the release of Tidemark."""
    project = tomllib.loads((ROOT / "lib/pyproject.toml").read_text())["project"]
    return str(project["version"])


def write_sbom(root: Path, name: str, debian: Iterable[str], wheels: Iterable[str]) -> None:
    """Write the list of an image's components, in CycloneDX's format."""
    components = [_component("deb/debian", item, "=") for item in debian]
    components += [_component("pypi", item, "==") for item in wheels]
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": name, "version": release()}},
        "components": components,
    }
    path = root / "usr/share/tidemark/sbom.cdx.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def _component(kind: str, item: str, separator: str) -> dict[str, str]:
    name, _, version = item.partition(separator)
    purl = f"pkg:{kind}/{name}@{version}"
    return {"type": "library", "name": name, "version": version, "purl": purl}
