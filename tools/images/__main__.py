"""Build the images of the services, ZooKeeper and Spark, without a daemon and without a registry.

    build/images/tidemark.tar     all four services and the command line
    build/images/zookeeper.tar    ZooKeeper, from the jars in PySpark
    build/images/spark.tar        Spark with Tidemark's data source and jobs

The same sources and lock files (``debian.lock`` here, ``requirements/*.txt``) give the same bytes.
The hot modules of the services are compiled, and modules of wheels stripped, so that the bytes also
depend on gcc and binutils; not with ``--pure``.
"""

import argparse
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from compiled.build import BuildError

from images import compiling, debian, rootfs
from images.archive import Image, write_archive
from images.debian import Archive, Package, PackageError
from images.tree import Layer, write_layer

# Not the address of a registry: what podman calls an image that was built here.
REGISTRY: Final = "localhost"
NAMES: Final = ("tidemark", "zookeeper", "spark")
_PYSPARK: Final = next((rootfs.ROOT / ".venv/lib").glob("python3.*/site-packages/pyspark"))
_LABELS: Final = {
    "org.opencontainers.image.licenses": "Apache-2.0",
    "org.opencontainers.image.vendor": "Tidemark",
    "org.cyclonedx.sbom": "/usr/share/tidemark/sbom.cdx.json",
}
_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_PYTHON: Final = {
    "PATH": _PATH,
    "PYTHONPATH": f"/{rootfs.SITE}:/{rootfs.CODE}",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_JAVA: Final = {"PATH": f"/{rootfs.JAVA}/bin:{_PATH}", "JAVA_HOME": f"/{rootfs.JAVA}"}


class Builder:
    """Builds images below a directory. Layers that images share are built once."""

    def __init__(
        self,
        output: Path,
        packages: Sequence[Package],
        archive: Archive,
        *,
        compiled: bool,
    ) -> None:
        """``compiled``: whether the hot modules in the image of the services are compiled."""
        self._compiled = compiled
        self._output = output
        self._work = output / "work"
        self._packages = packages
        self._archive = archive
        self._layers: dict[str, Layer] = {}

    def tidemark(self) -> Image:
        """Return the image of the services: one, since they share all but a hundredth of it."""
        root = rootfs.new_root(self._work / "code")
        rootfs.add_our_code(root)
        wheels = self._wheels()
        if self._compiled:
            compiling.add_compiled(root, self._work, self._files("headers"))
        self._compile(root, [rootfs.CODE])
        self._sbom(root, "tidemark", ("base", "python"), wheels)
        layers = [
            *self._debian("base", "python"),
            self._layers["wheels"],
            self._write("code", root),
        ]
        return self._image("tidemark", layers, ["tidemark", "--help"], _PYTHON)

    def zookeeper(self) -> Image:
        """Return the image of ZooKeeper, of the release whose jars PySpark has."""
        root = rootfs.new_root(self._work / "zookeeper")
        release = rootfs.add_zookeeper(root, _PYSPARK)
        self._sbom(root, "zookeeper", ("base", "java"), [f"zookeeper=={release}"])
        layers = [*self._debian("base", "java"), self._write("zookeeper", root)]
        return self._image("zookeeper", layers, ["java", "-version"], _JAVA)

    def spark(self) -> Image:
        """Return the image of Spark with the data source and the jobs."""
        root = rootfs.new_root(self._work / "spark-code")
        rootfs.add_spark(root)
        self._compile(root, [rootfs.CODE])
        wheels = [*self._wheels(), *self._spark_wheels()]
        self._sbom(root, "spark", ("base", "python", "java", "shell"), wheels)
        layers = [*self._debian("base", "python", "java", "shell"), self._layers["wheels"]]
        layers += [self._layers["spark"], self._layers["pyspark"], self._write("spark-code", root)]
        spark_home = {"SPARK_HOME": f"/{rootfs.SPARK}"}
        return self._image("spark", layers, ["python3"], {**_PYTHON, **_JAVA, **spark_home})

    def _image(
        self, name: str, layers: list[Layer], command: list[str], environment: dict[str, str]
    ) -> Image:
        labels = {
            **_LABELS,
            "org.opencontainers.image.title": name,
            "org.opencontainers.image.version": rootfs.release(),
        }
        full = f"{REGISTRY}/{name if name == 'tidemark' else f'tidemark-{name}'}"
        user = f"{rootfs.USER}:{rootfs.USER}"
        return Image(
            f"{full}:{rootfs.release()}", layers, user, command, environment, labels, "/data"
        )

    def _debian(self, *names: str) -> list[Layer]:
        """Layers of Debian packages."""
        return [self._layers.get(name) or self._debian_layer(name) for name in names]

    def _debian_layer(self, name: str) -> Layer:
        root = rootfs.new_root(self._work / name)
        debian.unpack(self._files(name), root)
        if name == "base":
            rootfs.finish_base(root)
        elif name == "python":
            rootfs.finish_python(root, self._work / "base")
        elif name == "java":
            rootfs.finish_java(root)
        return self._write(name, root, owned=frozenset({"data"}))

    def _files(self, layer: str) -> list[Path]:
        """Return the files of a layer's packages, as they are locked."""
        packages = [package for package in self._packages if package.layer == layer]
        files = self._archive.fetch([package.release for package in packages])
        for package, file in zip(packages, files, strict=True):
            debian.check(package, file)
        return files

    def _wheels(self) -> list[str]:
        """Make the layer of what the services need at run time."""
        return self._wheels_layer("wheels", "runtime.txt", ())

    def _spark_wheels(self) -> list[str]:
        wheels = self._wheels_layer("spark", "dev.txt", ("py4j", "pyarrow", "numpy"))
        root = rootfs.new_root(self._work / "pyspark")
        release = rootfs.add_pyspark(root, _PYSPARK)
        self._compile(root, [rootfs.SITE])
        self._write("pyspark", root)
        return [*wheels, f"pyspark=={release}"]

    def _wheels_layer(self, name: str, lock: str, only: Sequence[str]) -> list[str]:
        self._debian("base", "python")
        root = rootfs.new_root(self._work / name)
        installed = rootfs.install_wheels(root, rootfs.ROOT / "requirements" / lock, only=only)
        if name not in self._layers:
            if self._compiled:
                compiling.strip_wheels(root / rootfs.SITE)
            self._compile(root, [rootfs.SITE])
            self._write(name, root)
        return installed

    def _compile(self, root: Path, directories: list[str]) -> None:
        self._debian("base", "python")
        rootfs.compile_all(root, self._work / "base", self._work / "python", directories)

    def _write(self, name: str, root: Path, owned: frozenset[str] = frozenset()) -> Layer:
        layer = write_layer(root, self._output / "layers" / f"{name}.tar", owned=owned)
        self._layers[name] = layer
        return layer

    def _sbom(self, root: Path, name: str, layers: Sequence[str], wheels: Sequence[str]) -> None:
        debs = [package.release for package in self._packages if package.layer in layers]
        rootfs.write_sbom(root, name, debs, wheels)


def resolve(archive: Archive) -> list[Package]:
    """Return the packages of each layer as Debian has them now. Downloads them."""
    base = archive.closure(rootfs.BASE_PACKAGES)
    python = archive.closure((*rootfs.BASE_PACKAGES, *rootfs.PYTHON_PACKAGES))
    java = [archive.release(name) for name in rootfs.JAVA_PACKAGES]
    shell = [archive.release(name) for name in rootfs.SHELL_PACKAGES]
    headers = [archive.release(name) for name in rootfs.HEADERS_PACKAGES]
    layers = {"base": base, "python": python, "java": java, "shell": shell, "headers": headers}
    return [
        Package(layer, release, debian.hash_of(file))
        for layer, releases in layers.items()
        for release, file in zip(releases, archive.fetch(releases), strict=True)
        if layer == "base" or release not in base
        if release.partition("=")[0] not in rootfs.NEEDLESS
    ]


def build(
    names: Iterable[str],
    output: Path,
    packages: Sequence[Package],
    *,
    compiled: bool,
) -> dict[str, str]:
    """Build images; ``compiled``: the services' with their hot modules compiled. Returns digests by
    name. Raises PackageError or BuildError.
    """
    builder = Builder(output, packages, Archive(output / "debs"), compiled=compiled)
    makers = {
        "tidemark": builder.tidemark,
        "zookeeper": builder.zookeeper,
        "spark": builder.spark,
    }
    digests = {}
    for name in names:
        image = makers[name]()
        path = output / f"{name}.tar"
        digests[name] = write_archive(image, path)
        mib = sum(layer.size for layer in image.layers) / 2**20
        print(f"{path}: {image.name}, {mib:,.0f} MiB, {digests[name]}", flush=True)
    shutil.rmtree(output / "work")
    return digests


def main(argv: Sequence[str]) -> int:
    """Build the named images, or all; ``--lock`` takes Debian's packages of today."""
    parser = argparse.ArgumentParser(prog="images", description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=[*NAMES, []], help="images to build; default: all"
    )
    parser.add_argument("--output", type=Path, default=rootfs.ROOT / "build/images")
    parser.add_argument("--lock", action="store_true", help="take Debian's packages of today")
    parser.add_argument(
        "--pure",
        action="store_true",
        help="compile nothing: needs no gcc, and the bytes depend on no compiler",
    )
    options = parser.parse_args(argv)
    try:
        if options.lock:
            debian.write_lock(resolve(Archive(options.output / "debs")))
        packages = debian.read_lock()
        build(options.names or NAMES, options.output, packages, compiled=not options.pure)
    except PackageError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    except BuildError as error:
        print(f"images: {error}\nwith --pure nothing is compiled", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
