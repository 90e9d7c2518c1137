import pyarrow as pa
import pytest
from tidemark.model.topics import TopicPartition
from tidemark_spark.errors import SchemaError
from tidemark_spark.sink.errors import RowError
from tidemark_spark.sink.schema import SinkSchema, payload_bytes
from tidemark_spark.sink.write_options import write_options

SOURCE = [("source_topic", "string"), ("source_partition", "int"), ("source_offset", "bigint")]
HEADERS = "array<struct<key:string,value:binary>>"


def of(*columns: tuple[str, str], **options: str) -> SinkSchema:
    named = {name.replace("__", "."): value for name, value in options.items()}
    given = {"bootstrap.servers": "h:1", **named}
    return SinkSchema.of(columns, write_options(given, streaming=True))


def refused(*columns: tuple[str, str], **options: str) -> str:
    with pytest.raises(SchemaError) as found:
        of(*columns, **options)
    return str(found.value)


def source_rows(*rows: tuple[str | None, int, int]) -> pa.RecordBatch:
    topics, partitions, offsets = zip(*rows, strict=True)
    columns = {
        "value": pa.array([b""] * len(rows)),
        "source_topic": pa.array(topics, pa.string()),
        "source_partition": pa.array(partitions, pa.int32()),
        "source_offset": pa.array(offsets, pa.int64()),
    }
    return pa.record_batch(columns)


def test_columns_are_found_by_name() -> None:
    schema = of(("offset", "bigint"), ("topic", "string"), ("value", "string"))
    rows = pa.record_batch({"offset": [9], "topic": ["t"], "value": ["v"]})
    columns = schema.columns(rows)
    assert columns.value.to_pylist() == [b"v"]
    assert columns.topic.to_pylist() == ["t"]  # type: ignore[union-attr]
    assert columns.key is None


def test_the_option_topic_goes_before_the_column() -> None:
    schema = of(("topic", "string"), ("value", "string"), topic="all")
    assert schema.columns(pa.record_batch({"topic": ["t"], "value": ["v"]})).topic == "all"


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ([("key", "binary")], "no column value"),
        ([("value", "int")], 'cast("binary")'),
        ([("value", "binary"), ("partition", "string")], "partition has type string"),
        ([("value", "binary"), ("timestamp", "bigint")], "timestamp has type bigint"),
        ([("value", "binary"), ("headers", "map<string,string>")], "headers has type map"),
        ([("value", "binary"), ("vlaue", "binary")], 'withColumnRenamed("vlaue", "value")'),
        ([("value", "binary"), ("user", "string")], "does not write a column user"),
    ],
)
def test_wrong_columns_are_named(columns: list[tuple[str, str]], says: str) -> None:
    assert says in refused(*columns, topic="t")


def test_a_topic_is_needed() -> None:
    assert 'option("topic"' in refused(("value", "binary"))


def test_all_that_the_source_gives_may_come_along() -> None:
    given = [("timestampType", "int"), ("offset", "bigint"), ("headers", HEADERS), *SOURCE]
    assert set(of(("value", "binary"), *given, topic="t").places) == {"value", "headers"}


def test_source_offsets_need_their_columns() -> None:
    said = refused(("value", "binary"), topic="t", group__id="g", source__offsets="true")
    assert "source_topic, source_partition, source_offset" in said


def test_a_group_reads_behind_the_highest_offset() -> None:
    schema = of(("value", "binary"), *SOURCE, topic="t", group__id="g", source__offsets="true")
    rows = source_rows(("a", 0, 7), ("a", 1, 3), ("a", 0, 5), ("b", 0, 0))
    assert schema.next_offsets(rows) == {
        TopicPartition("a", 0): 8,
        TopicPartition("a", 1): 4,
        TopicPartition("b", 0): 1,
    }


def test_a_row_without_its_offset_is_an_error() -> None:
    schema = of(("value", "binary"), *SOURCE, topic="t", group__id="g", source__offsets="true")
    with pytest.raises(RowError, match="source_offset is null"):
        schema.next_offsets(source_rows((None, 0, 7)))


def test_payload_is_keys_and_values() -> None:
    schema = of(("key", "string"), ("value", "string"), topic="t")
    rows = pa.record_batch({"key": ["ab", None], "value": ["cde", None]})
    assert payload_bytes(schema.columns(rows)) == 5
