"""Layers and archives: the same tree gives the same bytes, and the bytes are what they say."""

import hashlib
import json
import os
import tarfile
from pathlib import Path

import pytest
from images.archive import Image, write_archive
from images.debian import LOCK, Package, PackageError, check, hash_of, read_lock, write_lock
from images.rootfs import (
    BASE_PACKAGES,
    HEADERS_PACKAGES,
    JAVA_PACKAGES,
    PYTHON_PACKAGES,
    SHELL_PACKAGES,
    USER,
)
from images.tree import write_layer


def tree(root: Path, names: list[str], *, mode: int, time: int) -> Path:
    """The same content, made in another order, at another time, under another umask."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")
        path.chmod(mode)
        os.utime(path, (time, time))
    (root / "link").symlink_to("etc/a")
    return root


def names_in(path: Path) -> list[str]:
    with tarfile.open(path) as tar:
        return tar.getnames()


@pytest.mark.feature("KU27")
def test_the_same_tree_gives_the_same_layer_whenever_and_in_whatever_order_it_was_made(
    tmp_path: Path,
) -> None:
    one = tree(tmp_path / "one", ["etc/b", "data/c", "etc/a"], mode=0o644, time=1)
    other = tree(tmp_path / "other", ["data/c", "etc/a", "etc/b"], mode=0o600, time=2_000_000_000)
    first = write_layer(one, tmp_path / "one.tar")
    second = write_layer(other, tmp_path / "other.tar")
    assert first.path.read_bytes() == second.path.read_bytes()
    assert names_in(first.path) == ["link", "data", "data/c", "etc", "etc/a", "etc/b"]


def test_files_belong_to_root_except_what_is_named(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", ["etc/a", "data/b"], mode=0o755, time=1)
    layer = write_layer(root, tmp_path / "layer.tar", owned=frozenset({"data"}))
    with tarfile.open(layer.path) as tar:
        owners = {info.name: (info.uid, info.gid, info.mtime) for info in tar}
        assert tar.getmember("etc/a").mode == 0o755
    assert owners.pop("data") == (USER, USER, 0)
    assert set(owners.values()) == {(0, 0, 0)}


def test_a_second_name_of_a_file_is_a_file_of_its_own(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", ["a"], mode=0o644, time=1)
    os.link(root / "a", root / "b")
    layer = write_layer(root, tmp_path / "layer.tar")
    with tarfile.open(layer.path) as tar:
        assert [tar.getmember(name).isreg() for name in ("a", "b")] == [True, True]


def archive(path: Path) -> dict[str, bytes]:
    root = tree(path / "root", ["etc/a"], mode=0o644, time=1)
    layer = write_layer(root, path / "layer.tar")
    image = Image("localhost/it:1", [layer], "10001:10001", ["run"], {"PATH": "/bin"}, {"a": "b"})
    write_archive(image, path / "it.tar")
    with tarfile.open(path / "it.tar") as tar:
        return {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]


def test_every_blob_of_an_archive_is_named_by_its_hash(tmp_path: Path) -> None:
    files = archive(tmp_path)
    blobs = {name: content for name, content in files.items() if name.startswith("blobs/")}
    assert len(blobs) == 3
    for name, content in blobs.items():
        assert name == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"


def test_an_archive_can_be_read_as_oci_layout_and_by_docker(tmp_path: Path) -> None:
    files = archive(tmp_path)
    index = json.loads(files["index.json"])
    blob = index["manifests"][0]["digest"].replace(":", "/")
    manifest = json.loads(files[f"blobs/{blob}"])
    config = json.loads(files["blobs/" + manifest["config"]["digest"].replace(":", "/")])
    (docker,) = json.loads(files["manifest.json"])
    assert index["manifests"][0]["annotations"]["io.containerd.image.name"] == "localhost/it:1"
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    assert config["config"]["User"] == "10001:10001"
    assert docker["RepoTags"] == ["localhost/it:1"]
    assert set(docker["Layers"]) | {docker["Config"]} <= files.keys()


def test_the_lock_names_every_package_that_an_image_asks_for(tmp_path: Path) -> None:
    locked = read_lock()
    names = {package.release.partition("=")[0] for package in locked}
    layers = (BASE_PACKAGES, PYTHON_PACKAGES, JAVA_PACKAGES, SHELL_PACKAGES, HEADERS_PACKAGES)
    assert names >= {name for layer in layers for name in layer}
    release = {package.release.partition("=")[0]: package.release for package in locked}
    headers = release["libpython3.11-dev"].partition("=")[2]
    assert release["python3.11-minimal"].partition("=")[2] == headers
    assert {len(package.sha256) for package in locked} == {64}
    write_lock(reversed(locked), tmp_path / "lock")
    assert (tmp_path / "lock").read_text() == LOCK.read_text()


def test_a_package_that_is_not_the_locked_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a_1_amd64.deb"
    file.write_bytes(b"as locked")
    package = Package("base", "a=1", hash_of(file))
    check(package, file)
    file.write_bytes(b"changed")
    with pytest.raises(PackageError, match="is locked; delete the file"):
        check(package, file)
