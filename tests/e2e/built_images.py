"""Images of the services and of ZooKeeper, built once of Debian's packages of today.

The services' modules are interpreted, because compiling them takes minutes; with ``COMPILED=1`` in
the environment (``make compiled-test``) they are compiled, as by ``make images``.
"""

import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Final

import pytest
from images.__main__ import build, resolve
from images.debian import Archive

COMPILED: Final = bool(os.environ.get("COMPILED"))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the archives of both images."""
    output = tmp_path_factory.mktemp("images")
    packages = resolve(Archive(output / "debs"))
    build(["tidemark", "zookeeper"], output, packages, compiled=COMPILED)
    return output


def unpacked(archive: Path, root: Path) -> dict[str, str]:
    """Unpack an image's layers as a container runtime does. Returns its environment."""
    root.mkdir()
    with tarfile.open(archive) as tar:
        (named,) = json.loads(_read(tar, "manifest.json"))
        for layer in named["Layers"]:
            argv = ["tar", "-x", "--keep-directory-symlink", "-C", str(root)]
            subprocess.run(argv, input=_read(tar, layer), check=True)
        config = json.loads(_read(tar, named["Config"]))["config"]
    return dict(pair.split("=", 1) for pair in config["Env"])


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()
