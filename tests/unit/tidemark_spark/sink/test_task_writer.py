import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark_spark.sink import task_writer
from tidemark_spark.sink.task_writer import PIECE_BYTES, PIECE_BYTES_MAX, pieces


def batch(*sizes: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([bytes(size) for size in sizes], pa.binary())})


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=8), st.integers(8, 200))
def test_pieces_hold_the_same_rows_in_order(sizes: list[list[int]], piece_bytes: int) -> None:
    before = task_writer.PIECE_BYTES
    task_writer.PIECE_BYTES = piece_bytes  # type: ignore[misc]
    try:
        got = [piece["value"].to_pylist() for piece in pieces(batch(*each) for each in sizes)]
    finally:
        task_writer.PIECE_BYTES = before  # type: ignore[misc]
    assert [value for piece in got for value in piece] == [
        bytes(size) for each in sizes for size in each
    ]
    assert all(got)


def test_small_batches_are_joined() -> None:
    small = batch(*[PIECE_BYTES // 8] * 2)
    assert [piece.num_rows for piece in pieces([small] * 5)] == [8, 2]


def test_large_batches_are_cut() -> None:
    large = batch(*[PIECE_BYTES] * 16)
    assert max(piece.nbytes for piece in pieces([large])) <= PIECE_BYTES_MAX
