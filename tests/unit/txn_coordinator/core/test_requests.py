"""Requests and replies have the fields of the wire."""

from dataclasses import fields

import pytest
from tidemark_wire.v1 import txn_pb2 as pb
from txn_coordinator.core import requests

UNSAID = {"ListTransactions": {"error_message"}}
"""Fields that Kafka's API does not have."""
OF_THE_SHELL = {"caller", "takes_pages", "after", "next"}
"""Fields of the wire that no core sees: who asks, and the pages of a listing."""


@pytest.mark.parametrize(
    "name",
    [
        "InitTransactionalId",
        "AddPartitions",
        "AddOffsets",
        "EndTransaction",
        "DescribeTransactions",
        "ListTransactions",
        "BeginTransaction",
        "EnlistWriter",
        "FinishTransaction",
    ],
)
def test_requests_and_replies_are_those_of_the_wire(name: str) -> None:
    ours = {field.name for field in fields(getattr(requests, name))} - {"spare_producer_id"}
    wire = {field.name for field in getattr(pb, f"{name}Request").DESCRIPTOR.fields}
    assert ours == wire - OF_THE_SHELL
    reply = {field.name for field in fields(getattr(requests, f"{name}Reply"))}
    wire = {field.name for field in getattr(pb, f"{name}Response").DESCRIPTOR.fields}
    assert reply - UNSAID.get(name, set()) == wire - OF_THE_SHELL


@pytest.mark.parametrize(
    ("ours", "wire"),
    [
        (requests.TransactionView, pb.TransactionState),
        (requests.WriterView, pb.WriterState),
        (requests.CountedWriter, pb.FinishTransactionRequest.Writer),
    ],
)
def test_views_are_those_of_the_wire(ours: type, wire: type) -> None:
    names = {field.name for field in fields(ours)}
    assert names == {field.name for field in wire.DESCRIPTOR.fields}  # type: ignore[attr-defined]
