"""File trees of images, and the same bytes for the same tree: names sorted, no owner, no times."""

import hashlib
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_CHUNK: Final = 1 << 20
_RUNTIME_UID: Final = 10001


class Layer(NamedTuple):
    """Uncompressed layer of an image. Its digest is that of its bytes."""

    path: Path
    digest: str
    size: int


def write_layer(root: Path, path: Path, *, owned: frozenset[str] = frozenset()) -> Layer:
    """Write the tree below ``root`` as a tar file. ``owned``: names that belong to the user of the
    services; everything else belongs to root.

    Layers are not compressed: the bytes would depend on the release of a compressor, and a registry
    or a node's store compresses them itself.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name in _names(root):
            _add(tar, root / name, name, _RUNTIME_UID if name in owned else 0)
    return Layer(path, digest_of(path), path.stat().st_size)


def digest_of(path: Path) -> str:
    """Return ``sha256:...`` of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(_CHUNK):
            found.update(part)
    return f"sha256:{found.hexdigest()}"


def _names(root: Path) -> Iterator[str]:
    """Names below a directory in an order that no file system changes, parents first."""
    for directory, directories, files in os.walk(root):
        directories.sort()
        links = [name for name in directories if (Path(directory) / name).is_symlink()]
        relative = Path(directory).relative_to(root)
        if relative.parts:
            yield str(relative)
        for name in sorted([*files, *links]):
            yield str(relative / name)


def _add(tar: tarfile.TarFile, path: Path, name: str, owner: int) -> None:
    info = tar.gettarinfo(path, name)
    info.uid = info.gid = owner
    info.uname = info.gname = ""
    info.mtime = 0
    if info.isdir():
        info.mode = 0o755 if name != "tmp" else 0o1777
    elif not info.issym():  # a second name of a file is a file of its own: order decides nothing
        info.type, info.linkname = tarfile.REGTYPE, ""
        info.size = path.stat().st_size
        info.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
    if info.isreg():
        with path.open("rb") as file:
            tar.addfile(info, file)
    else:
        tar.addfile(info)
