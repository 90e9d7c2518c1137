"""Metadata for gRPC clients: brokers, topics, a producer id.

The same answers as Kafka's Metadata and InitProducerId give, with gRPC addresses.
"""

from collections.abc import Callable

from tidemark.model.authorization import CLUSTER, Operation, ResourceType, topic_resource
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import NO_BROKER, NO_PRODUCER
from tidemark.model.metadata import GRPC_LISTENER, BrokerImage, PartitionImage
from tidemark.model.topics import topic_name_problem
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.producer_ids import ProducerIds
from tidemark.runtime.service_config import HostPort
from tidemark_wire.v1 import partition_store_pb2 as pb

from broker.shell.cluster.auto_creation import AutoCreation
from broker.shell.facts import BrokerFacts
from broker.shell.request_context import RequestContext
from broker.shell.rpc.streams import Caller

AddressOf = Callable[[BrokerImage], str]
"""Returns the gRPC address of a broker for the clients of a server; '' if it has none."""


def process_address(broker: BrokerImage) -> str:
    """Return the address at which other processes call."""
    return broker.grpc_endpoint


def client_address(broker: BrokerImage) -> str:
    """Return the address of the listener GRPC."""
    endpoint = broker.endpoint(GRPC_LISTENER)
    return "" if endpoint is None else str(HostPort(endpoint.host, endpoint.port))


class Descriptions:
    """Answers DescribeEndpoints, DescribeTopics and InitProducerId."""

    def __init__(
        self,
        facts: BrokerFacts,
        metadata: MetadataCache,
        auto_creation: AutoCreation,
        producer_ids: ProducerIds,
        *,
        address_of: AddressOf,
    ) -> None:
        self._facts = facts
        self._metadata = metadata
        self._auto_creation = auto_creation
        self._producer_ids = producer_ids
        self._address_of = address_of

    def describe_endpoints(self) -> pb.DescribeEndpointsResponse:
        """Describe every live broker, as advertised. Every client may ask, as in Kafka's Metadata:
        none could connect otherwise.
        """
        brokers = []
        for broker in self._metadata.image.brokers.values():
            endpoint = broker.client_endpoint()
            if broker.fenced:
                continue
            brokers.append(
                pb.DescribeEndpointsResponse.Broker(
                    broker_id=broker.broker_id,
                    grpc_endpoint=self._address_of(broker),
                    kafka_host=endpoint.host if endpoint else "",
                    kafka_port=endpoint.port if endpoint else 0,
                    rack=broker.rack or "",
                )
            )
        return pb.DescribeEndpointsResponse(
            cluster_id=self._metadata.image.cluster_id, brokers=brokers
        )

    async def describe_topics(
        self, caller: Caller, request: pb.DescribeTopicsRequest
    ) -> pb.DescribeTopicsResponse:
        """Describe the requested topics, in their order, or all; created first where that is
        allowed.
        """
        refused: dict[str, ErrorCode] = {}
        if request.allow_auto_topic_creation:
            missing = self._auto_creation.missing(caller.requester, request.topics)
            refused = missing.refused
            if missing.to_create:
                refused |= await self._auto_creation.create(
                    _context(caller, request.client_id), missing.to_create
                )
        names = list(request.topics) or self._seen(caller)
        return pb.DescribeTopicsResponse(
            topics=[self._topic(caller, name, refused) for name in names]
        )

    def _seen(self, caller: Caller) -> list[str]:
        """Return the names of the topics that the caller may describe, sorted."""
        sees = self._facts.authorizer.sees
        return [
            name
            for name in sorted(self._metadata.image.topics)
            if sees(caller.requester, Operation.DESCRIBE, topic_resource(name))
        ]

    async def init_producer_id(
        self, caller: Caller, _request: pb.InitProducerIdRequest
    ) -> pb.InitProducerIdResponse:
        """Return a new producer id with epoch 0 (KIP-98)."""
        authorizer = self._facts.authorizer
        if not authorizer.authorize(
            caller.requester, Operation.IDEMPOTENT_WRITE, CLUSTER
        ) and not authorizer.authorize_any(caller.requester, Operation.WRITE, ResourceType.TOPIC):
            return _no_producer(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "may not write idempotently"
            )
        try:
            producer_id = await self._producer_ids.next()
        except TidemarkError as failure:
            return _no_producer(failure.code, failure.message)
        return pb.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

    def _topic(
        self, caller: Caller, name: str, refused: dict[str, ErrorCode]
    ) -> pb.DescribeTopicsResponse.Topic:
        problem = topic_name_problem(name)
        if problem is not None:
            return _absent(name, ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if not self._facts.authorizer.authorize(
            caller.requester, Operation.DESCRIBE, topic_resource(name)
        ):
            return _absent(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "may not be described")
        found = self._metadata.image.topics.get(name)
        if found is None:
            code = refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            words = f"topic {name!r} does not exist"
            if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                words += ", and may not be created"
            return _absent(name, code, words)
        return pb.DescribeTopicsResponse.Topic(
            topic=name,
            topic_id=found.topic_id,
            partitions=[self._partition(state) for state in found.partitions],
        )

    def _partition(self, state: PartitionImage) -> pb.DescribeTopicsResponse.Partition:
        leader = self._metadata.image.brokers.get(state.leader)
        led = leader is not None and not leader.fenced
        return pb.DescribeTopicsResponse.Partition(
            partition=state.partition,
            error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
            leader=state.leader if led else NO_BROKER,
            leader_epoch=state.leader_epoch,
            replicas=state.replicas,
            isr=state.isr,
        )


def _no_producer(code: ErrorCode, message: str) -> pb.InitProducerIdResponse:
    return pb.InitProducerIdResponse(
        error_code=code, error_message=message, producer_id=NO_PRODUCER, producer_epoch=-1
    )


def _context(caller: Caller, client_id: str) -> RequestContext:
    return RequestContext(caller.requester, client_id, 0, 0, "GRPC", caller.peer, caller.request_id)


def _absent(name: str, code: ErrorCode, message: str) -> pb.DescribeTopicsResponse.Topic:
    return pb.DescribeTopicsResponse.Topic(topic=name, error_code=code, error_message=message)
