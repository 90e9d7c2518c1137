"""The PySpark data source ``tidemark``: reads topics, and writes them exactly once.

    from tidemark_spark import register
    register(spark)
    spark.readStream.format("tidemark")

``data_source`` is the class that Spark calls; it imports ``source`` for reading and ``sink`` for
writing, which do not import each other. Both use ``options`` (parsing), ``errors`` and
``worker_clients`` (the clients of a Python process). ``progress`` reports the progress of any
streaming query, on the console and as Prometheus metrics.

This package and the native client are all that executors import for a query. It reaches
brokers and coordinators through that client only, and uses nothing of the jobs (``tidemark_jobs``).
"""

from typing import TYPE_CHECKING

from tidemark_spark.data_source import TidemarkDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TidemarkDataSource", "register"]


def register(spark: "SparkSession") -> None:
    """Register the format ``tidemark`` with a session."""
    spark.dataSource.register(TidemarkDataSource)
