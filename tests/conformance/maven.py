"""Apache Kafka, Flink, Hadoop and the Java programs of this folder, as Maven brings and builds
them.

``KAFKA_VERSION`` in the environment takes another version than java/pom.xml names.
"""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parent / "java"
_BUILD_S: Final = 400
_TAIL: Final = 6_000
_NOT_REACHED: Final = re.compile(
    r"Could not (?:resolve|transfer)|Cannot access|could not be resolved"
)
_NOT_THERE: Final = re.compile(rf"Could not find|{_NOT_REACHED.pattern}")
"""The registry may lack a version that a test chooses."""


class NotBuiltError(Exception):
    """There is no JDK or no Maven, or Maven does not reach its registry."""


def class_path(project: Path = PROJECT) -> str:
    """Compile; return the programs of a project and all libraries. Needs no network if an earlier
    build left what is needed. Raises NotBuiltError.
    """
    _process_classes(project, ("java", "javac", "mvn"), missing=_NOT_REACHED)
    libraries = (project / "target/class-path").read_text().strip()
    return f"{project / 'target/classes'}:{libraries}"


def libraries(project: Path, **properties: str) -> tuple[Path, ...]:
    """Return the jars of a project that compiles nothing; ``hadoop_version`` is its property
    ``hadoop.version``. Needs no network after the first time. Raises NotBuiltError.
    """
    with tempfile.TemporaryDirectory() as directory:
        found = Path(directory) / "class-path"
        named = {name.replace("_", "."): value for name, value in properties.items()}
        options = [f"-D{name}={value}" for name, value in named.items()]
        options.append(f"-Dmdep.outputFile={found}")
        _process_classes(project, ("java", "mvn"), *options, missing=_NOT_THERE)
        return tuple(Path(jar) for jar in found.read_text().strip().split(":"))


def _process_classes(
    project: Path, tools: tuple[str, ...], *options: str, missing: re.Pattern[str]
) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            raise NotBuiltError(f"{tool} is not installed")
    built = _maven(project, *options, "--offline")
    if built.returncode != 0:
        built = _maven(project, *options)
    if built.returncode != 0 and missing.search(built.stdout):
        raise NotBuiltError(f"Maven does not find all it needs: {built.stdout.strip()[:300]}")
    assert built.returncode == 0, built.stdout[-_TAIL:]


def _maven(project: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    if version := os.environ.get("KAFKA_VERSION"):
        options = (*options, f"-Dkafka.version={version}")
    return subprocess.run(
        ["mvn", "--quiet", "--batch-mode", *options, "process-classes"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_BUILD_S,
        check=False,
    )
