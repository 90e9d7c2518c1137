"""``tidemark log dump``: what the broker's storage writes is told in words, damage included."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from broker.core.producers import ProducedBatch, ProducerEntry, ProducerState
from broker.storage.checkpoint import write_epochs, write_offsets
from broker.storage.offset_index import OffsetIndex
from broker.storage.producer_snapshot import encode_snapshot
from broker.storage.time_index import TimeIndex
from broker.storage.txn_index import AbortedTxn, encode_aborted
from tidemark.cli.failure import CommandError
from tidemark.cli.log_dump import dump_segment
from tidemark.codec.compression import ZSTD
from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.codec.records import build_batch
from tidemark.model.topics import TopicPartition
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.os_disk import OsDisk
from typer.testing import CliRunner, Result

BASE = 1_000
NAME = f"{BASE:020d}"
app = typer.Typer()
app.command()(dump_segment)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def dumped(*arguments: object) -> list[dict[str, Any]]:
    result = run(*arguments, "-o", "json")
    documents: list[dict[str, Any]] = json.loads(result.stdout)
    return documents


def batches() -> list[bytes]:
    records = [
        (1_700_000_000_000, b"key", b"value", (("trace", b"\xff"),)),
        (1_700_000_000_001, None, b"\x00\x01", ()),
    ]
    return [
        build_batch(records, base_offset=BASE, compression=ZSTD, leader_epoch=4),
        build_batch(
            records, base_offset=BASE + 2, producer_id=7, producer_epoch=1, base_sequence=3
        ),
        build_marker(
            EndTxnMarker(False, 1), producer_id=7, producer_epoch=1, timestamp=1_700_000_000_002
        ),
    ]


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / f"{NAME}.log"
    path.write_bytes(b"".join(batches()[:2]))
    return path


def test_batches_in_json(segment: Path) -> None:
    (document,) = dumped(segment)
    first, second = document["batches"]
    assert (first["base_offset"], first["last_offset"], first["records"]) == (1_000, 1_001, 2)
    assert (first["compression"], first["leader_epoch"], first["crc_ok"]) == ("zstd", 4, True)
    assert (second["producer_id"], second["producer_epoch"], second["base_sequence"]) == (7, 1, 3)
    assert second["position"] == first["size_bytes"]
    assert document["summary"]["records"] == 4
    assert document["summary"]["problem"] is None


def test_records_in_json(segment: Path) -> None:
    (document,) = dumped(segment, "--records")
    assert document["batches"][0]["entries"] == [
        {
            "offset": 1_000,
            "timestamp": 1_700_000_000_000,
            "key": "key",
            "value": "value",
            "headers": {"trace": "base64:/w=="},
        },
        {
            "offset": 1_001,
            "timestamp": 1_700_000_000_001,
            "key": None,
            "value": "base64:AAE=",
            "headers": {},
        },
    ]


def test_a_table_for_people(segment: Path) -> None:
    result = run(segment)
    assert result.exit_code == 0
    assert "zstd" in result.stdout
    assert "2023-11-14T22:13:20.001Z" in result.stdout
    assert "2 batches, 4 records" in result.stderr
    assert "offsets 1000..1003" in result.stderr
    assert "value" in run(segment, "-r").stdout


def test_a_segment_without_a_batch_has_no_offsets(tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.log"
    path.touch()
    assert run(path).stderr == "0 batches, 0 records, 0 bytes, no offsets, 0 with a bad CRC\n"


def test_the_hint_for_a_foreign_folder_is_one_that_a_development_cluster_has(
    tmp_path: Path,
) -> None:
    problem = run(tmp_path).exception
    assert isinstance(problem, CommandError)
    assert ".tidemark/data/broker-1/orders-0" in problem.hint


def test_the_limit_bounds_what_is_shown_not_what_is_checked(segment: Path) -> None:
    (document,) = dumped(segment, "--limit", "1")
    assert len(document["batches"]) == 1
    assert document["summary"]["batches"] == 2
    assert "1 more; --limit 0 shows all" in run(segment, "-n", "1").stderr
    (records,) = dumped(segment, "-r", "-n", "3")
    assert [len(batch["entries"]) for batch in records["batches"]] == [2, 1]


def test_markers_are_told(tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.log"
    path.write_bytes(batches()[2])
    (document,) = dumped(path, "-r")
    assert document["batches"][0]["flags"] == ["transactional", "control"]
    assert document["batches"][0]["entries"][0]["control"] == "abort"


def test_a_flipped_bit_is_told_and_the_rest_is_shown(segment: Path) -> None:
    content = bytearray(segment.read_bytes())
    content[70] ^= 1
    segment.write_bytes(content)
    (document,) = dumped(segment)
    assert [batch["crc_ok"] for batch in document["batches"]] == [False, True]
    assert document["summary"]["first_bad_position"] == 0
    assert document["summary"]["bad_batches"] == 1
    result = run(segment)
    assert isinstance(result.exception, CommandError)
    assert result.exception.exit_code is ExitCode.DATA
    assert "first bad position 0: CRC does not match" in result.stderr


@pytest.mark.parametrize(
    ("tail", "problem"), [(bytes(100), "100 zero bytes to the end"), (b"torn", "4 bytes are no")]
)
def test_a_torn_tail_is_told(segment: Path, tail: bytes, problem: str) -> None:
    whole = segment.stat().st_size
    segment.write_bytes(segment.read_bytes() + tail)
    (document,) = dumped(segment)
    assert len(document["batches"]) == 2
    assert document["summary"]["first_bad_position"] == whole
    assert problem in document["summary"]["problem"]


def write_all_kinds(directory: Path) -> None:
    """Every file that a partition's directory may hold, by the code that writes it."""
    index, times = OffsetIndex(), TimeIndex()
    index.add(5, 4_096)
    times.maybe_add(1_700_000_000_000, 5)
    entry = ProducerEntry(7, 1, 3, -1, 1_700_000_000_000, (ProducedBatch(3, 4, 1_002, 1_003, 9),))
    (directory / f"{NAME}.log").write_bytes(b"".join(batches()[:2]))
    (directory / f"{NAME}.index").write_bytes(index.encode_unwritten())
    (directory / f"{NAME}.timeindex").write_bytes(times.encode_unwritten())
    (directory / f"{NAME}.txnindex").write_bytes(encode_aborted([AbortedTxn(7, 1, 2, 1)]))
    (directory / f"{NAME}.snapshot").write_bytes(encode_snapshot(ProducerState((entry,), 3)))
    disk = OsDisk(directory)
    write_epochs(disk, "leader-epoch-checkpoint", [(0, 0), (4, 1_000)])
    offsets = {TopicPartition("orders", 0): 12}
    write_offsets(disk, "cleaner-offset-checkpoint", offsets, sync=False)


def test_every_kind_of_file_that_the_broker_writes(tmp_path: Path) -> None:
    write_all_kinds(tmp_path)
    (tmp_path / "partition.metadata").write_text("version: 0\n")
    documents = {Path(one["path"]).name: one for one in dumped(tmp_path)}
    assert all(one.get("problem") is None for one in documents.values())
    entries = {name: one["entries"] for name, one in documents.items() if "entries" in one}
    assert entries == {
        f"{NAME}.index": [{"offset": 1_005, "position": 4_096}],
        f"{NAME}.timeindex": [{"timestamp": 1_700_000_000_000, "offset": 1_005}],
        f"{NAME}.txnindex": [
            {"producer_id": 7, "first_offset": 1, "last_offset": 2, "last_stable": 1}
        ],
        f"{NAME}.snapshot": [
            {
                "producer_id": 7,
                "producer_epoch": 1,
                "coordinator_epoch": 3,
                "open_txn_first_offset": -1,
                "updated_at": 1_700_000_000_000,
                "batches": ["3..4@1002..1003"],
            },
            {"owner_epoch": 3, "ended_unreplicated": 0},
        ],
        "leader-epoch-checkpoint": [
            {"leader_epoch": 0, "start_offset": 0},
            {"leader_epoch": 4, "start_offset": 1_000},
        ],
        "cleaner-offset-checkpoint": [{"topic": "orders", "partition": 0, "offset": 12}],
    }
    assert run(tmp_path).exit_code == 0


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.index", bytes(9), "1 bytes at 8 are not an entry"),
        ("x.snapshot", b"\x00\x01" + bytes(8), "CRC does not match"),
        ("x.snapshot", b"\x00\x09" + bytes(8), "version 9 is not known"),
        ("x.snapshot", b"", "too short"),
        ("x.txnindex", b"\x00\x02" + bytes(32), "version 2 is not known"),
        ("leader-epoch-checkpoint", b"0\n2\n1 2\n", "1 entries, the second line says '2'"),
        ("leader-epoch-checkpoint", b"0\n1\n1 2 3\n", "line 3 has 3 fields"),
        ("leader-epoch-checkpoint", b"9\n0\n", "expected version 0"),
    ],
)
def test_damaged_small_files_are_told(
    tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    (tmp_path / name).write_bytes(content)
    (document,) = dumped(tmp_path / name)
    assert problem in document["problem"]
    assert isinstance(run(tmp_path / name).exception, CommandError)


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("none.log", ExitCode.NO_INPUT, "does not exist"),
        ("", ExitCode.NO_INPUT, "contains no file of a log"),
        ("notes.txt", ExitCode.USAGE, "is not a file of a log"),
    ],
)
def test_what_cannot_be_dumped_is_refused_with_a_hint(
    tmp_path: Path, name: str, code: ExitCode, words: str
) -> None:
    if name == "notes.txt":
        (tmp_path / name).touch()
    problem = run(tmp_path / name).exception
    assert isinstance(problem, CommandError)
    assert problem.exit_code is code
    assert words in problem.what
    assert problem.hint
