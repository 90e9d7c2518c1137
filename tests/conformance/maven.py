"""Apache Kafka, Flink and the Java programs of this folder, as Maven brings and builds them.

``KAFKA_VERSION`` in the environment takes another version than java/pom.xml names.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parent / "java"
_BUILD_S: Final = 400
_TAIL: Final = 6_000
_NOT_REACHED: Final = re.compile(
    r"Could not (?:resolve|transfer)|Cannot access|could not be resolved"
)


class NotBuiltError(Exception):
    """There is no JDK or no Maven, or Maven does not reach its registry."""


def class_path(project: Path = PROJECT) -> str:
    """Compile; return the programs of a project and all libraries. Needs no network if an earlier
    build left what is needed. Raises NotBuiltError.
    """
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise NotBuiltError(f"{tool} is not installed")
    built = _maven(project, "--offline")
    if built.returncode != 0:
        built = _maven(project)
    if built.returncode != 0 and _NOT_REACHED.search(built.stdout):
        raise NotBuiltError(f"Maven does not reach its registry: {built.stdout.strip()[:300]}")
    assert built.returncode == 0, built.stdout[-_TAIL:]
    libraries = (project / "target/class-path").read_text().strip()
    return f"{project / 'target/classes'}:{libraries}"


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
