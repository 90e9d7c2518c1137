"""Rows about sinks."""

from tidemark.cli.txn.sinks import sink_row
from tidemark.client.transactions.sink_batches import SinkDescription


def test_a_sink_is_a_row_of_its_query_and_batches() -> None:
    sink = SinkDescription("q", 7, "n", ("old",), None)
    assert sink_row(sink) == {
        "query_id": "q",
        "committed_batch": 7,
        "open_batch": None,
        "note": "n",
        "retired_queries": ["old"],
    }
