"""The query of docs/spark/offload.md that loads a topic into HDFS, in small batches.

load_topic.py ADDRESSES TOPIC DIRECTORY CHECKPOINT OFFSETS_A_BATCH
"""

import sys

from pyspark.sql import SparkSession
from tidemark_spark import register


def main(addresses: str, topic: str, directory: str, checkpoint: str, offsets: str) -> None:
    """Load what the topic has now, from where the checkpoint says."""
    spark = SparkSession.builder.appName("load").getOrCreate()
    register(spark)
    (
        spark.readStream.format("tidemark")
        .option("bootstrap.servers", addresses)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", offsets)
        .load()
        .writeStream.format("parquet")
        .option("path", directory)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
