"""Tidemark's PySpark data source, format ``tidemark``: exactly-once source and sink, and jobs."""

from typing import TYPE_CHECKING

from tidemark_spark.source import TidemarkDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TidemarkDataSource", "register"]


def register(spark: "SparkSession") -> None:
    """Let a session know the format: ``spark.read.format("tidemark")``."""
    spark.dataSource.register(TidemarkDataSource)
