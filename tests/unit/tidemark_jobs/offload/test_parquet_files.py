"""Parquet files of tasks: what goes where, and what is left out."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tidemark_jobs.offload.manifest import StagedFile
from tidemark_jobs.offload.parquet_files import FileSettings, write_files

SCHEMA = pa.schema(
    [
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("date", pa.string()),
    ]
)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def rows(offsets: range, *, partition: int = 0, date: str = "2026-03-01") -> pa.RecordBatch:
    made = [
        {
            "value": b"v%d" % offset,
            "topic": "orders",
            "partition": partition,
            "offset": offset,
            "timestamp": NOON,
            "date": date,
        }
        for offset in offsets
    ]
    return pa.RecordBatch.from_pylist(made, schema=SCHEMA)


def written(
    tmp_path: Path,
    *batches: pa.RecordBatch,
    layout: tuple[str, ...] = ("topic", "date"),
    rows_max: int = 1_000,
) -> list[StagedFile]:
    staging = tmp_path / "run"
    staging.mkdir(exist_ok=True)
    settings = FileSettings(str(staging), layout, "v1", rows_max=rows_max)
    return write_files(batches, settings)


def test_a_range_is_one_file(tmp_path: Path) -> None:
    (only,) = written(tmp_path, rows(range(5)), rows(range(7, 9)))
    assert only.file[1:6] == ("orders", 0, 0, 8, 7)
    assert only.file.path == (
        "topic=orders/date=2026-03-01/orders-0-00000000000000000000-v1.parquet"
    )


def test_its_columns_are_those_that_the_directories_do_not_name(tmp_path: Path) -> None:
    (only,) = written(tmp_path, rows(range(3)))
    table = pq.ParquetFile(tmp_path / only.staged).read()
    assert table.column_names == ["value", "partition", "offset", "timestamp"]
    assert table.column("value").to_pylist() == [b"v0", b"v1", b"v2"]


def test_it_names_its_offsets_itself(tmp_path: Path) -> None:
    (only,) = written(tmp_path, rows(range(3, 6)))
    metadata = pq.ParquetFile(tmp_path / only.staged).metadata.metadata
    assert metadata[b"tidemark.offsets"] == b"3..5"


def test_its_size_is_what_is_on_the_disk(tmp_path: Path) -> None:
    (only,) = written(tmp_path, rows(range(3)))
    assert (tmp_path / only.staged).stat().st_size == only.file.size_bytes


def test_a_file_holds_so_many_rows_at_most(tmp_path: Path) -> None:
    files = [each.file for each in written(tmp_path, rows(range(10)), rows_max=4)]
    assert [(each.first_offset, each.last_offset) for each in files] == [(0, 3), (4, 7), (8, 9)]


def test_dates_that_alternate_have_a_file_each(tmp_path: Path) -> None:
    batches = [rows(range(n, n + 1), date=f"2026-03-0{1 + n % 2}") for n in range(4)]
    mixed = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    files = [each.file for each in written(tmp_path, mixed)]
    assert [(each.first_offset, each.last_offset, each.rows) for each in files] == [
        (0, 2, 2),
        (1, 3, 2),
    ]


def test_more_dates_than_files_may_be_open_lose_nothing(tmp_path: Path) -> None:
    batches = [rows(range(n, n + 1), date=f"d{n % 20:02d}") for n in range(40)]
    files = [each.file for each in written(tmp_path, *batches)]
    assert sum(each.rows for each in files) == 40
    assert len({each.path for each in files}) == len(files)


def test_partitions_never_share_a_file(tmp_path: Path) -> None:
    files = [each.file for each in written(tmp_path, rows(range(2)), rows(range(2), partition=1))]
    assert [(each.partition, each.rows) for each in files] == [(0, 2), (1, 2)]


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    assert written(tmp_path, rows(range(0))) == []


def test_two_attempts_never_write_to_the_same_file(tmp_path: Path) -> None:
    first, second = written(tmp_path, rows(range(3))), written(tmp_path, rows(range(3)))
    assert first[0].staged != second[0].staged
    assert first[0].file == second[0].file


def test_a_zombie_makes_no_directory(tmp_path: Path) -> None:
    settings = FileSettings(str(tmp_path / "removed"), ("topic",), "v1")
    with pytest.raises(FileNotFoundError):
        write_files([rows(range(1))], settings)


def test_a_failed_task_answers_nothing(tmp_path: Path) -> None:
    backwards = [rows(range(5, 9)), rows(range(2))]
    with pytest.raises(AssertionError):
        written(tmp_path, *backwards)
