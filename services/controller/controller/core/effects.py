"""Everything the controller can ask its shell to do, and the answers it gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID, BrokerEpoch, TopicId
from tidemark.model.metadata import START_OF_FEED, ClusterDelta, ClusterImage, FeedPosition

from controller.core.cluster import StoreOp


class TopicResult(NamedTuple):
    """What became of one topic of a request."""

    name: str
    topic_id: TopicId = NO_TOPIC_ID
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}


class ConfigResult(NamedTuple):
    """What became of one resource of AlterConfigs."""

    resource_type: int
    resource_name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


class Registered(NamedTuple):
    """A broker's entitlement."""

    broker_epoch: BrokerEpoch
    cluster_id: str


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """``count`` producer ids from ``first`` on."""

    first: int
    count: int


Result = tuple[TopicResult, ...] | tuple[ConfigResult, ...] | Registered | ProducerIds | None


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing the shell must do, in the order given."""


@dataclass(frozen=True, slots=True)
class WriteStore(Effect):
    """Write in this order; answer StoreWritten or StoreFailed. One is under way at a time."""

    write_id: int
    ops: tuple[StoreOp, ...]


@dataclass(frozen=True, slots=True)
class OpenFeed(Effect):
    """A new term: subscribers may come and begin with this image."""

    image: ClusterImage


@dataclass(frozen=True, slots=True)
class Publish(Effect):
    """Send a delta to every subscriber; ``image`` is what it leads to."""

    delta: ClusterDelta
    image: ClusterImage


@dataclass(frozen=True, slots=True)
class CloseFeed(Effect):
    """The term is over: send every subscriber away."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resign(Effect):
    """Give up being the controller, and stand for election anew."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reply(Effect):
    """Answer a request. ``position`` is where the feed shows what it did."""

    request_id: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    position: FeedPosition = START_OF_FEED
    result: Result = field(default=None)
