"""Look-up of a partition that a caller of PartitionStore names."""

from typing import NamedTuple, Protocol

from tidemark.model.authorization import Operation, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import TopicId

from broker.shell.facts import BrokerFacts
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.table import PartitionTable
from broker.shell.rpc.streams import Caller


class NamesPartition(Protocol):
    """Request about one partition, by the name of its topic or, with name '', by id."""

    @property
    def topic(self) -> str:
        """Name of the topic."""

    @property
    def topic_id(self) -> TopicId:
        """Id of the topic."""

    @property
    def partition(self) -> int:
        """Number of the partition."""


class NamedPartition(NamedTuple):
    """Partition as a request names it."""

    topic: str
    topic_id: TopicId
    partition: int


def permitted(
    facts: BrokerFacts,
    table: PartitionTable,
    caller: Caller,
    operation: Operation,
    named: NamesPartition,
) -> HostedPartition | ErrorCode:
    """Return the partition if the caller may do this to its topic, otherwise an error. A topic that
    is named has the same error for who may not, whether it exists or not.
    """
    found = table.find(named.topic, named.topic_id, named.partition)
    if isinstance(found, HostedPartition):
        resource = found.resource
    elif named.topic:
        resource = topic_resource(named.topic)
    else:
        return found  # an id is no secret
    if facts.authorizer.authorize(caller.requester, operation, resource):
        return found
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED
