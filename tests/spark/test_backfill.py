"""Files into a topic: every line and every row once."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from e2e.clusters import Cluster
from pyspark.sql import SparkSession
from spark.spark_records import create, reader, values_of
from tidemark_jobs.backfill.command import parse
from tidemark_jobs.backfill.options import Options
from tidemark_jobs.backfill.query import run
from tidemark_jobs.backfill.transform import transform
from tidemark_jobs.keys import parse_key
from tidemark_spark.errors import OptionError

COMMON = ["--bootstrap-servers", "h:1", "--path", "p", "--topic", "t", "--checkpoint", "c"]


def options_for(
    cluster: Cluster, topic: str, path: Path, *, checkpoint: str = "checkpoint", **more: Any
) -> Options:
    return Options(
        bootstrap_servers=cluster.grpc(),
        path=str(path),
        topic=topic,
        checkpoint=str(path.parent / checkpoint),
        sink_id=f"backfill-{topic}",
        **more,
    )


def forget_last_commit(checkpoint: str) -> None:
    """As if the driver had died after the sink's commit, before Spark noted its own."""
    commits = Path(checkpoint) / "commits"
    last = max(int(each.name) for each in commits.iterdir() if each.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def test_lines_of_plain_and_compressed_files_are_written_once(
    spark: SparkSession, cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = create(cluster, topic_name("logs"), 2)
    files = tmp_path / "in"
    (files / "deep").mkdir(parents=True)
    (files / "a.log").write_bytes(b"u1 one\nu2 two\n\xff\xfe raw\n")
    with gzip.open(files / "deep" / "b.log.gz", "wb") as packed:
        packed.write(b"u1 three\n")
    options = options_for(cluster, topic, files, key=parse_key(r"regex:^(\w+) "), files_per_batch=1)
    assert run(spark, options, print).records == 4
    forget_last_commit(options.checkpoint)
    run(spark, options, print)
    (files / "c.log").write_bytes(b"u3 four\n")
    assert run(spark, options, print).records == 1
    frame = reader(spark, cluster, topic).load()
    keys = {bytes(row.value): row.key and bytes(row.key) for row in frame.collect()}
    assert values_of(frame) == sorted(
        [b"u1 one", b"u2 two", b"\xff\xfe raw", b"u1 three", b"u3 four"]
    )
    assert (keys[b"u1 three"], keys[b"\xff\xfe raw"]) == (b"u1", None)


def test_a_lost_checkpoint_does_not_write_everything_again(
    spark: SparkSession, cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = create(cluster, topic_name("logs"), 1)
    files = tmp_path / "in"
    files.mkdir()
    (files / "a.log").write_bytes(b"one\n")
    run(spark, options_for(cluster, topic, files), print)
    with pytest.raises(OptionError, match="is not the one it used"):
        run(spark, options_for(cluster, topic, files, checkpoint="lost"), print)
    said: list[str] = []
    again = options_for(cluster, topic, files, checkpoint="lost", again=True)
    run(spark, again, said.append)
    assert "AGAIN" in said[0]
    assert values_of(reader(spark, cluster, topic).load()) == [b"one", b"one"]


def test_parquet_rows_keep_their_key_and_partition(
    spark: SparkSession, cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = create(cluster, topic_name("rows"), 3)
    files = tmp_path / "in"
    files.mkdir()
    rows = [{"key": b"k", "value": b"v%d" % n, "partition": n % 3} for n in range(6)]
    pq.write_table(pa.Table.from_pylist(rows), files / "rows.parquet")
    options = options_for(cluster, topic, files, form="parquet", keep_partitions=True)
    run(spark, options, print)
    found = reader(spark, cluster, topic).load().collect()
    assert sorted((bytes(row.value), row.partition) for row in found) == [
        (b"v%d" % n, n % 3) for n in range(6)
    ]
    assert {bytes(row.key) for row in found} == {b"k"}


def test_columns_that_only_some_files_have_are_not_left_out(
    spark: SparkSession, cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = create(cluster, topic_name("rows"), 1)
    files = tmp_path / "in"
    files.mkdir()
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.schema([("value", pa.binary()), ("headers", headers)])
    older = pa.table({"value": [b"a"]})
    newer = pa.Table.from_pylist(
        [{"value": b"b", "headers": [{"key": "h", "value": b"1"}]}], schema=rows
    )
    pq.write_table(older, files / "1.parquet")
    pq.write_table(newer, files / "2.parquet")
    options = options_for(cluster, topic, files, form="parquet")
    run(spark, options, print)
    found = reader(spark, cluster, topic, includeHeaders="true").load().collect()
    assert {bytes(row.value): row.headers and row.headers[0].key for row in found} == {
        b"a": None,
        b"b": "h",
    }
    pq.write_table(pa.table({"value": ["a text"]}), files / "3.parquet")
    with pytest.raises(OptionError, match="has another type in some of them"):
        run(spark, options, print)


def test_a_table_becomes_json(spark: SparkSession) -> None:
    table = spark.createDataFrame([("u1", 5)], "user string, amount long")
    options = parse(
        [
            "--bootstrap-servers",
            "h:1",
            "--path",
            "p",
            "--topic",
            "t",
            "--checkpoint",
            "c",
            "--format",
            "parquet",
            "--json",
            "--key-column",
            "user",
        ]
    )
    (row,) = transform(table, options).collect()
    assert (row.key, json.loads(row.value)) == ("u1", {"user": "u1", "amount": 5})


def test_a_column_that_is_not_there_is_named(spark: SparkSession) -> None:
    table = spark.createDataFrame([("u1",)], "user string")
    options = parse(
        [
            "--bootstrap-servers",
            "h:1",
            "--path",
            "p",
            "--topic",
            "t",
            "--checkpoint",
            "c",
            "--format",
            "parquet",
        ]
    )
    with pytest.raises(OptionError, match="needs a column value; the columns of p are user"):
        transform(table, options)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (["--json"], "--json cannot be used with --format text"),
        (["--format", "parquet", "--key", "field:1"], "--key cannot be used with --format parquet"),
        (["--key", "key"], "no key of its own"),
        (["--files-per-batch", "0"], "must be at least 1"),
    ],
)
def test_wrong_options_are_said(more: list[str], what: str) -> None:
    with pytest.raises(OptionError, match=what):
        parse([*COMMON, *more])
