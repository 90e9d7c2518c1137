"""Parts of a broker without disks or network: a real one, whose controller answers what the test
says.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

import pytest
from broker.config import BrokerConfig
from broker.shell.request_context import RequestContext
from manual_clock import ManualClock
from tidemark.kafka import long_tail
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.model.authorization import Requester
from tidemark.model.errors import TidemarkError
from tidemark.model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ControllerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark.model.metadata import (
    BrokerImage,
    ClusterImage,
    Endpoint,
    FeedPosition,
    PartitionImage,
    TopicImage,
)
from tidemark.runtime.controller_client import ControllerClient
from unit.broker.shell.broker_parts import BrokerParts

POSITION = FeedPosition(ControllerEpoch(1), 5)


class StubController:
    """Answers each method with the message set for it, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, Any, float]] = []

    async def call(self, method: str, request: Any, timeout_s: float) -> Any:
        self.asked.append((method, request, timeout_s))
        answer = self.answers[method]
        if isinstance(answer, TidemarkError):
            raise answer
        return answer


def broker_image(broker_id: int, *, fenced: bool = False) -> BrokerImage:
    points = (
        Endpoint("CLIENT", "host", 9091 + broker_id),
        Endpoint("INTERNAL", "inside", 9191 + broker_id),
    )
    return BrokerImage(
        BrokerId(broker_id),
        BrokerEpoch(1),
        bytes(16),
        points,
        "",
        rack=f"r{broker_id}",
        node="n",
        fenced=fenced,
    )


def topic_image(name: str, leaders: list[int], configs: Mapping[str, str]) -> TopicImage:
    partitions = tuple(
        PartitionImage(
            number,
            (BrokerId(leader),),
            (BrokerId(leader),),
            BrokerId(leader),
            LeaderEpoch(7),
            PartitionEpoch(1),
        )
        for number, leader in enumerate(leaders)
    )
    return TopicImage(name, TopicId(name.ljust(16).encode()[:16]), configs, partitions)


@pytest.fixture
def controller() -> StubController:
    return StubController()


@pytest.fixture
def parts(controller: StubController) -> BrokerParts:
    """Broker 1 of three (3 is fenced), with topics ``compacted`` (1 partition) and ``orders`` (3
    partitions).
    """
    client = cast("ControllerClient", controller)  # call is all that handlers use of it
    broker = BrokerParts(
        BrokerConfig(broker_id=1),
        clock=ManualClock(),
        controller=client,
    )
    broker.cluster.registration.broker_epoch = 4
    topics = (
        topic_image("compacted", [1], {"cleanup.policy": "compact"}),
        topic_image("orders", [1, 2, 3], {"retention.ms": "5"}),
    )
    image = ClusterImage(
        position=POSITION,
        cluster_id="the-cluster",
        controller_id=ControllerId(1),
        brokers={
            BrokerId(1): broker_image(1),
            BrokerId(2): broker_image(2),
            BrokerId(3): broker_image(3, fenced=True),
        },
        topics={topic.name: topic for topic in topics},
        topics_by_id={topic.topic_id: topic for topic in topics},
        broker_configs={"": {"log.segment.bytes": "2097152"}},
        group_configs={"billing": {"consumer.session.timeout.ms": "50000"}},
        client_metrics={"all": {"metrics": "*", "interval.ms": "1000"}},
    )
    broker.metadata.take(image)
    return broker


class Ask(Protocol):
    """Asks one API over the wire's bytes, both ways: ``ask(ApiKey.X, fields, 3)``."""

    def __call__(
        self, api_key: ApiKey, fields: Mapping[str, object], version: int | None = None
    ) -> long_tail.Struct: ...


AskOf = Callable[[BrokerParts], Ask]


@pytest.fixture
def ask_of() -> AskOf:
    """Ask one API of a broker: ``ask_of(parts)(ApiKey.X, fields, 3)``."""

    def asking(parts: BrokerParts) -> Ask:
        def ask(
            api_key: ApiKey, fields: Mapping[str, object], version: int | None = None
        ) -> long_tail.Struct:
            version = APIS[api_key].max if version is None else version
            context = RequestContext(
                Requester("User:ANONYMOUS", ""), "me", 1, version, "CLIENT", "peer", "request-1"
            )
            body = long_tail.write_request(api_key, version, fields)
            request = long_tail.read_request(api_key, version, memoryview(body))

            async def handle() -> Mapping[str, object]:
                return await parts.long_tail()[api_key](request, context)

            written = long_tail.write_response(api_key, version, asyncio.run(handle()))
            return long_tail.read_response(api_key, version, memoryview(written))

        return ask

    return asking


@pytest.fixture
def ask(parts: BrokerParts, ask_of: AskOf) -> Ask:
    """Ask ``parts``."""
    return ask_of(parts)
