"""Spark's own Kafka connector by its coordinates: Maven resolves it once, later runs need none."""

from pathlib import Path
from typing import Final, NamedTuple

import pyspark
from conformance.maven import NotBuiltError, libraries

PROJECT: Final = Path(__file__).parent


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
    missing = ""
    for of_spark, of_tokens in CANDIDATES:
        try:
            jars = libraries(PROJECT, spark_version=of_spark, token_version=of_tokens)
        except NotBuiltError as problem:
            missing = str(problem)
        else:
            return Connector(of_spark, jars)
    raise ConnectorMissingError(f"no Spark connector for Kafka: {missing}")
