"""Archives of images: the OCI layout in a tar file, which ``docker load`` also reads.

Written without a daemon and without a registry. ``ctr images import``, ``podman load``, ``skopeo
copy oci-archive:`` and ``docker load`` take it.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from images.tree import Layer

_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_EPOCH: Final = "1970-01-01T00:00:00Z"


class Image(NamedTuple):
    """An image: its name with a tag, its layers from the bottom, and how a container starts."""

    name: str
    layers: Sequence[Layer]
    user: str
    command: Sequence[str]
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    working_directory: str = "/"


def write_archive(image: Image, path: Path) -> str:
    """Write the archive, and return the digest of the image (of its manifest)."""
    config = _json(_config(image))
    layers = [_descriptor(_LAYER, layer.digest, layer.size) for layer in image.layers]
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, _digest(config), len(config)),
            "layers": layers,
        }
    )
    named = _descriptor(_MANIFEST, _digest(manifest), len(manifest))
    tag = image.name.rpartition(":")[2]
    named["annotations"] = {
        "io.containerd.image.name": image.name,
        "org.opencontainers.image.ref.name": tag,
    }
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [named]}
    for_docker = [
        {
            "Config": _blob(_digest(config)),
            "RepoTags": [image.name],
            "Layers": [_blob(layer.digest) for layer in image.layers],
        }
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".tmp")
    with tarfile.open(scratch, "w", format=tarfile.PAX_FORMAT) as tar:
        _put(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _put(tar, "index.json", _json(index))
        _put(tar, "manifest.json", _json(for_docker))
        _put(tar, _blob(_digest(manifest)), manifest)
        _put(tar, _blob(_digest(config)), config)
        for layer in {layer.digest: layer for layer in image.layers}.values():
            info = tarfile.TarInfo(_blob(layer.digest))
            info.size = layer.size
            with layer.path.open("rb") as file:
                tar.addfile(info, file)
    scratch.replace(path)
    return _digest(manifest)


def _config(image: Image) -> dict[str, Any]:
    return {
        "architecture": "amd64",
        "os": "linux",
        "created": _EPOCH,
        "config": {
            "User": image.user,
            "Cmd": list(image.command),
            "Env": [f"{name}={value}" for name, value in sorted(image.environment.items())],
            "Labels": dict(sorted(image.labels.items())),
            "WorkingDir": image.working_directory,
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in image.layers]},
        "history": [{"created": _EPOCH, "created_by": "tools/images"} for _ in image.layers],
    }


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest, "size": size}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def _put(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))
