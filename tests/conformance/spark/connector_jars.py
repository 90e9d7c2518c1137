"""Spark's own Kafka connector by its coordinates: Maven resolves it once, later runs need none."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

import pyspark

PROJECT: Final = Path(__file__).parent
RESOLVE_S: Final = 300
_TAIL: Final = 3_000
_NOT_REACHED: Final = re.compile(
    r"Could not (?:resolve|transfer|find)|Cannot access|could not be resolved"
)


class Coordinates(NamedTuple):
    """The connector, and its module for delegation tokens."""

    connector: str
    tokens: str


class Connector(NamedTuple):
    """What to give to ``spark.jars``."""

    version: str
    jars: tuple[Path, ...]

    @property
    def spark_jars(self) -> str:
        """As the setting wants it."""
        return ",".join(str(jar) for jar in self.jars)


class ConnectorMissingError(Exception):
    """Without Maven, or without its registry, there is no connector. Says why."""


# The installed Spark's own; where the registry has not got that, the newest that runs on it.
CANDIDATES: Final = (
    Coordinates(pyspark.__version__, pyspark.__version__),
    Coordinates("4.2.0", "4.0.0"),
)


def resolve() -> Connector:
    """Its jars and what they need that PySpark does not carry. Raises ConnectorMissingError."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise ConnectorMissingError(f"{tool} is not installed")
    said = ""
    for coordinates in CANDIDATES:
        for options in (["--offline"], []):
            jars, said = _maven(coordinates, *options)
            if jars:
                return Connector(coordinates.connector, jars)
    raise ConnectorMissingError(f"Maven does not find Spark's Kafka connector: {said[:300]}")


def _maven(coordinates: Coordinates, *options: str) -> tuple[tuple[Path, ...], str]:
    """Its jars, or none and why not."""
    with tempfile.TemporaryDirectory() as directory:
        class_path = Path(directory) / "class-path"
        settings = (
            f"-Dspark.version={coordinates.connector}",
            f"-Dtoken.version={coordinates.tokens}",
            f"-Dmdep.outputFile={class_path}",
        )
        done = subprocess.run(
            ["mvn", "--quiet", "--batch-mode", *options, *settings, "process-classes"],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RESOLVE_S,
            check=False,
        )
        if done.returncode == 0:
            return tuple(Path(jar) for jar in class_path.read_text().strip().split(":")), ""
    assert _NOT_REACHED.search(done.stdout), done.stdout[-_TAIL:]
    return (), done.stdout.strip()
