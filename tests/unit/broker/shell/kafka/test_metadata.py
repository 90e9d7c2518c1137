"""Metadata: which topics it creates, and what it answers about those that a client may not have."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from broker.shell.cluster.auto_creation import AutoCreation
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import RequestHeader
from tidemark.kafka.metadata import (
    MetadataQuery,
    MetadataRequest,
    MetadataTopic,
    read_metadata_response,
    write_metadata_request,
)
from tidemark.model.authorization import CLUSTER, Operation, Requester
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId
from tidemark_wire.v1 import common_pb2
from tidemark_wire.v1 import controller_pb2 as pb
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.kafka.conftest import StubController
from unit.broker.shell.kafka.group_handlers import Rules

CREATE, DESCRIBE = Operation.CREATE, Operation.DESCRIBE
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
VERSION = 13


class Client:
    """Asks for metadata; its answers come at once, or from a task."""

    def __init__(self, parts: BrokerParts) -> None:
        self.rules = Rules()
        parts.facts = replace(parts.facts, authorizer=self.rules)
        creation = AutoCreation(parts.facts, parts.cluster.relay, parts.metadata)
        parts.cluster = replace(parts.cluster, auto_creation=creation)
        self._handle = parts.hot(ApiKey.METADATA)
        self._bodies: list[bytes] = []
        self._work: list[Coroutine[Any, Any, None]] = []
        self._connection = SimpleNamespace(
            requester=Requester("User:alice", ""),
            listener=SimpleNamespace(name="CLIENT"),
            peer="10.0.0.7:4711",
            software=None,
            answer=lambda _, body: self._bodies.append(body),
            later=lambda _: SimpleNamespace(send=lambda pieces: self._bodies.extend(pieces)),
            start=self._work.append,
        )

    def ask(
        self, *queries: MetadataQuery, version: int = VERSION, creates: bool = True
    ) -> list[MetadataTopic]:
        body = write_metadata_request(version, MetadataRequest(list(queries), creates))
        header = RequestHeader(int(ApiKey.METADATA), version, 1, "me", 0)
        self._handle(self._connection, header, memoryview(body))  # type: ignore[arg-type]
        for work in self._work:
            asyncio.run(work)
        self._work.clear()
        return read_metadata_response(memoryview(self._bodies.pop()), version).topics


@pytest.fixture
def client(parts: BrokerParts, controller: StubController) -> Client:
    position = common_pb2.FeedPosition(controller_epoch=1, version=5)
    made = pb.TopicResult(name="new", error_code=ErrorCode.NONE)
    controller.answers["CreateTopics"] = pb.CreateTopicsResponse(position=position, topics=[made])
    return Client(parts)


@pytest.mark.feature("SE17")
@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_a_client_that_may_not_create_a_topic_hears_so(
    client: Client, controller: StubController, version: int
) -> None:
    client.rules.denied |= {(CREATE, CLUSTER.name), (CREATE, "secret")}
    secret, new, orders = client.ask(
        *map(MetadataQuery, ("secret", "new", "orders")), version=version
    )
    assert [one.error_code for one in (secret, orders)] == [DENIED, ErrorCode.NONE]
    assert new.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    ((_, asked, _),) = controller.asked
    assert [one.name for one in asked.topics] == ["new"]


def test_a_right_to_create_is_asked_for_where_the_client_wants_to_create(
    client: Client, controller: StubController
) -> None:
    client.rules.denied |= {(CREATE, CLUSTER.name), (CREATE, "secret")}
    (topic,) = client.ask(MetadataQuery("secret"), creates=False)
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (topic,) = client.ask(MetadataQuery("secret"))
    assert (topic.error_code, controller.asked) == (DENIED, [])


def test_a_topic_that_the_client_may_not_describe_is_not_created(
    client: Client, controller: StubController
) -> None:
    client.rules.denied.add((DESCRIBE, "new"))
    (topic,) = client.ask(MetadataQuery("new"))
    assert (topic.error_code, controller.asked) == (DENIED, [])


def test_a_topic_id_that_exists_is_refused_without_the_name_of_its_topic(client: Client) -> None:
    client.rules.denied.add((DESCRIBE, "orders"))
    known, unknown = b"orders".ljust(16), b"nowhere".ljust(16)
    topics = client.ask(MetadataQuery(None, known), MetadataQuery(None, unknown))
    assert [(one.topic, one.topic_id, one.error_code) for one in topics] == [
        (None, known, DENIED),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_a_leader_without_the_client_s_listener_is_told_apart_from_version_6_on(
    parts: BrokerParts, client: Client, version: int
) -> None:
    image = parts.metadata.image
    second = image.brokers[BrokerId(2)]
    inside = tuple(one for one in second.endpoints if one.listener != "CLIENT")
    brokers = {**image.brokers, BrokerId(2): replace(second, endpoints=inside)}
    parts.metadata.take(replace(image, brokers=brokers))
    (orders,) = client.ask(MetadataQuery("orders"), version=version)
    assert [one.error_code for one in orders.partitions] == [
        ErrorCode.NONE,
        ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
    ]
