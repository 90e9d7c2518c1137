import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from tidemark_spark.sink.batch_writer import BatchWriter

VALUES = StructType([StructField("value", BinaryType())])
NAMED = {"sink.id": "s", "query.id": "q", "batch.id": "3"}


@pytest.mark.parametrize(("named", "expires"), [({}, True), (NAMED, False)])
def test_only_the_sink_of_a_write_that_cannot_be_repeated_expires(
    named: dict[str, str], expires: bool
) -> None:
    writer = BatchWriter({"bootstrap.servers": "h:1", "topic": "t", **named}, VALUES)
    assert writer.batch.expires is expires
    assert writer.batch.sink_id == named.get("sink.id", f"spark-batch-{writer.job.token}")
