"""Debian packages as content of images: resolved by apt, locked with hashes, unpacked, never
installed.

apt checks the signatures of the archive's lists. Maintainer scripts are not run: what an image
needs of them is written by ``images.rootfs``.
"""

import hashlib
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

LOCK: Final = Path(__file__).with_name("debian.lock")
_HEADER: Final = """\
# Debian packages of the images: layer name=version sha256. Written by `make images ARGS=--lock`.
"""


class Package(NamedTuple):
    """Release of a Debian package (``name=version``), the layer that it belongs to, and the SHA-256
    of its file.
    """

    layer: str
    release: str
    sha256: str


class PackageError(Exception):
    """A package cannot be had. The message says what to do."""


class Archive:
    """Debian's archive through apt, with the files it downloaded in ``cache``."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        (cache / "partial").mkdir(parents=True, exist_ok=True)
        # With an empty list of installed packages apt names everything that is needed, libc too.
        (cache / "status").write_text("")

    def closure(self, names: Iterable[str]) -> list[str]:
        """Return these packages and everything that they depend on, as ``name=version``."""
        words = self._apt("install", "--yes", "--simulate", *names).splitlines()
        # Inst libc6 (2.36-9+deb12u13 Debian:12.12/oldstable [amd64])
        found = [line.split() for line in words if line.startswith("Inst ")]
        return sorted(f"{words[1]}={words[2].removeprefix('(')}" for words in found)

    def release(self, name: str) -> str:
        """Return a package in the release that apt would install, as ``name=version``."""
        for line in self._apt("install", "--yes", "--simulate", name).splitlines():
            words = line.split()
            if words[:2] == ["Inst", name]:
                return f"{name}={words[2].removeprefix('(')}"
        raise PackageError(f"apt does not know the package {name}: run apt-get update")

    def fetch(self, packages: Sequence[str]) -> list[Path]:
        """Return the files of packages, each given as ``name=version``."""
        missing = [package for package in packages if not self._find(package)]
        if missing:
            self._apt("download", *missing)
        return [self._found(package) for package in packages]

    def _found(self, package: str) -> Path:
        path = self._find(package)
        if path is None:
            raise PackageError(f"apt did not download {package}")
        return path

    def _find(self, package: str) -> Path | None:
        name, _, version = package.partition("=")
        escaped = version.replace(":", "%3a")
        return next(self._cache.glob(f"{name}_{escaped}_*.deb"), None)

    def _apt(self, *words: str) -> str:
        options = {
            "Dir::State::status": str((self._cache / "status").absolute()),
            "Dir::Cache::archives": str(self._cache.absolute()),
            "Debug::NoLocking": "1",
            "APT::Install-Recommends": "0",
            "APT::Sandbox::User": "",
        }
        argv = ["apt-get", "-q"]
        for key, value in options.items():
            argv += ["-o", f"{key}={value}"]
        ran = subprocess.run(
            [*argv, *words],
            cwd=self._cache,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
        if ran.returncode:
            raise PackageError(
                f"apt-get {' '.join(words)}: {ran.stderr.strip()}\n"
                "run apt-get update; if the archive no longer has a locked release,"
                " run make images ARGS=--lock and commit the lock file"
            )
        return ran.stdout


def unpack(files: Iterable[Path], root: Path) -> None:
    """Unpack packages below ``root``, without documentation and translations."""
    for path in files:
        packed = subprocess.run(
            ["dpkg-deb", "--fsys-tarfile", str(path)], stdout=subprocess.PIPE, check=True
        )
        subprocess.run(
            [
                *("tar", "--extract", "--keep-directory-symlink", "--no-same-owner"),
                *("--directory", str(root)),
                *(f"--exclude=./usr/share/{name}" for name in ("doc/*/*", "man", "locale", "info")),
                *("--exclude=./usr/share/lintian", "--exclude=./usr/share/bug"),
            ],
            input=packed.stdout,
            check=True,
        )


def read_lock(path: Path = LOCK) -> list[Package]:
    """Return the locked packages."""
    lines = path.read_text().splitlines()
    return [_parse(line) for line in lines if line and not line.startswith("#")]


def _parse(line: str) -> Package:
    layer, release, sha256 = line.split()
    return Package(layer, release, sha256)


def write_lock(packages: Iterable[Package], path: Path = LOCK) -> None:
    """Write packages, sorted by layer and name."""
    path.write_text(_HEADER + "".join(f"{' '.join(package)}\n" for package in sorted(packages)))


def hash_of(file: Path) -> str:
    """Return the SHA-256 of a package's file, in hexadecimal."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def check(package: Package, file: Path) -> None:
    """Raise PackageError if a file is not the one that was locked."""
    found = hash_of(file)
    if found != package.sha256:
        raise PackageError(
            f"{file}: sha256 {found}, but {package.sha256} is locked; delete the file"
        )
