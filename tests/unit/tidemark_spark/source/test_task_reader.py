import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType
from tidemark_spark.errors import OptionError, SchemaError
from tidemark_spark.source.read_options import read_options
from tidemark_spark.source.task_reader import OffsetsPartition, TaskReader, arrow_schema

OPTIONS = read_options({"bootstrap.servers": "h:1", "subscribe": "a"}, streaming=False)
SOME = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])


def refused(name: str, kind: DataType, *, include_headers: bool = False) -> str:
    with pytest.raises(SchemaError) as found:
        arrow_schema(StructType([StructField(name, kind)]), include_headers=include_headers)
    return str(found.value)


def test_columns_in_the_order_asked() -> None:
    schema = arrow_schema(SOME, include_headers=False)
    assert list(schema) == [pa.field("offset", pa.int64()), pa.field("value", pa.binary())]


def test_a_column_that_is_not_there() -> None:
    assert "the source has no column 'name'" in refused("name", StringType())


def test_headers_that_were_not_asked_for() -> None:
    assert "try: includeHeaders=true" in refused("headers", StringType())


def test_a_column_of_another_type() -> None:
    assert "column 'value' is binary, not string" in refused("value", StringType())


def test_a_task_travels() -> None:
    task = TaskReader.of(OPTIONS, SOME)
    assert pickle.loads(pickle.dumps(task)) == task


def test_a_task_without_a_range_gives_nothing() -> None:
    assert list(TaskReader.of(OPTIONS, SOME).read(OffsetsPartition(None))) == []


def test_an_error_travels_whole() -> None:
    problem = pickle.loads(pickle.dumps(OptionError("what", "this")))
    assert (str(problem), problem.what, problem.hint) == ("what\n  try: this", "what", "this")
