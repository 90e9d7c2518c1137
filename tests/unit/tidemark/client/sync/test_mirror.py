"""The synchronous classes have the methods, signatures and docstrings of the async ones."""

import inspect
from collections.abc import Callable
from typing import Any, assert_type

import pytest
from tidemark.client import sync
from tidemark.client.admin.admin import Admin
from tidemark.client.consumer.consumer import Consumer
from tidemark.client.consumer.range_reader import RangeReader
from tidemark.client.producer.batches import RecordMetadata
from tidemark.client.producer.producer import Producer
from tidemark.client.share.share_consumer import ShareConsumer
from tidemark.client.transactions.multi_writer import TransactionHandle, Transactions, Writer
from tidemark.client.transactions.sink_batches import BatchWriter, SinkBatches
from tidemark.client.transactions.transactional_producer import TransactionalProducer

LIFE = {"start", "close"}
"""``with`` starts and closes a synchronous client, whose ``close`` also ends its thread."""
SESSION = {"deadline", "kafka_addresses"}
"""For the other classes of the async client."""
NOWAIT = {"send_nowait"}
"""For callers on the event loop."""
SHARED = {"acknowledge"}
"""For a share consumer on the same event loop."""
MANY = {"send_many", "send_encoded_many"}
"""Instead of many hops to the loop."""

CLASSES: list[tuple[type, type, set[str], set[str]]] = [
    # synchronous, async, left out of the synchronous one, only in the synchronous one
    (sync.Admin, Admin, LIFE, {"close"}),
    (sync.Consumer, Consumer, LIFE, {"close"}),
    (sync.Producer, Producer, LIFE | NOWAIT, {"close"} | MANY),
    (sync.RangeReader, RangeReader, LIFE | {"open"}, {"close"}),
    (sync.ShareConsumer, ShareConsumer, LIFE | {"take_out"}, {"close"}),
    (sync.SinkBatches, SinkBatches, LIFE | SESSION, {"close"}),
    (sync.Transactions, Transactions, LIFE | SESSION, {"close"}),
    (sync.TransactionalProducer, TransactionalProducer, LIFE | NOWAIT | SHARED, {"close"} | MANY),
    (sync.TransactionHandle, TransactionHandle, set(), set()),
    (sync.Writer, Writer, {"start"} | NOWAIT, MANY),
    (sync.BatchWriter, BatchWriter, {"start"} | NOWAIT, MANY),
]
REWRITTEN = {
    (sync.Consumer, "subscribe"),  # calls the listener in a thread
    (sync.RangeReader, "read"),  # yields batches
    (sync.SinkBatches, "enlist"),  # starts the writer
    (sync.SinkBatches, "commit"),  # takes synchronous writers
    (sync.TransactionHandle, "enlist"),
    (sync.TransactionHandle, "finish"),
    (sync.TransactionalProducer, "transaction"),  # a context manager
}
"""Written by hand, because a thread needs something else: their arguments are the same."""


def methods(kind: type) -> set[str]:
    return {
        name
        for name, value in inspect.getmembers(kind)
        if callable(value) and not name.startswith("_")
    }


def shared() -> list[tuple[type, str, Callable[..., Any], Callable[..., Any]]]:
    return [
        (own, name, getattr(own, name), getattr(model, name))
        for own, model, left_out, _ in CLASSES
        for name in sorted(methods(model) - left_out)
    ]


def arguments(method: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    parameters = inspect.signature(method).parameters.values()
    return [(each.name, each.kind, each.default) for each in parameters]


@pytest.mark.parametrize(("own", "model", "left_out", "added"), CLASSES)
def test_every_method_of_an_async_class_has_a_synchronous_form(
    own: type, model: type, left_out: set[str], added: set[str]
) -> None:
    assert left_out <= methods(model)
    assert methods(own) == (methods(model) - left_out) | added


def test_arguments_are_those_of_the_async_methods() -> None:
    differing = [
        (own.__name__, name)
        for own, name, method, model in shared()
        if arguments(method) != arguments(model)
    ]
    assert differing == []


def test_the_other_methods_are_derived() -> None:
    by_hand = {
        (own, name)
        for own, name, method, model in shared()
        if getattr(method, "__wrapped__", None) is not model
    }
    assert by_hand == REWRITTEN


def test_docstrings_are_those_of_the_async_methods() -> None:
    differing = {
        (own, name)
        for own, name, method, model in shared()
        if inspect.getdoc(method) != inspect.getdoc(model)
    }
    assert differing - REWRITTEN == set()


@pytest.mark.parametrize(("own", "model", "left_out", "added"), CLASSES)
def test_constructors_take_the_settings_of_the_async_ones(
    own: type, model: type, left_out: set[str], added: set[str]
) -> None:
    if "bootstrap_servers" not in inspect.signature(own).parameters:
        pytest.skip("made by another client")
    of_model = [each for each in arguments(model) if each[0] != "clock"]
    assert arguments(own) == [each for each in of_model if each[0] != "default_api_timeout_ms"]


def checked_by_mypy(producer: sync.Producer, handle: sync.TransactionHandle) -> None:
    """Never called. mypy fails on an ignore that it does not need, and on a type that differs."""
    assert_type(producer.send("t", b"v", partition=0), RecordMetadata)
    assert_type(producer.enqueue("t"), sync.SyncDelivery)
    assert_type(producer.partitions_for("t"), tuple[int, ...])
    producer.send("t", b"v", partition="0")  # type: ignore[arg-type]
    producer.send()  # type: ignore[call-arg]
    producer.partitions_for()  # type: ignore[call-arg]
    producer.enqueue("t", values=b"v")  # type: ignore[call-arg]
    handle.finish(commit="yes")  # type: ignore[arg-type]
