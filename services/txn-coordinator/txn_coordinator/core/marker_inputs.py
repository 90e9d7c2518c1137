"""Inputs and effects of the machine that sends transaction markers (``marker_queue``)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import ClusterImage
from tidemark.model.topics import TopicPartition

from txn_coordinator.core.effects import SendMarkers
from txn_coordinator.core.requests import MarkersWritten

# -- inputs


@dataclass(frozen=True, slots=True)
class Send:
    """Write these markers under the shard's owner epoch. Repeats of what is under way change
    nothing.
    """

    shard: int
    owner_epoch: int
    effect: SendMarkers


@dataclass(frozen=True, slots=True)
class Forget:
    """The shard is no longer served here: send none of its markers. Requests in flight go on."""

    shard: int


@dataclass(frozen=True, slots=True)
class ImageChanged:
    """Newer metadata."""

    image: ClusterImage


@dataclass(frozen=True, slots=True)
class Answered:
    """Answer to a request: a row of codes for each of its parts. Missing ones are errors."""

    request: int
    codes: Sequence[Sequence[ErrorCode]]


@dataclass(frozen=True, slots=True)
class CallFailed:
    """The request has no answer: its markers may have been written."""

    request: int
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Send what is due. All requests begin here, so that markers that come together go together."""


Input = Send | Forget | ImageChanged | Answered | CallFailed | Tick

# -- effects


class MarkerPart(NamedTuple):
    """Markers of one transaction in a request."""

    effect: SendMarkers
    owner_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Send a request to a broker, which leads all of its partitions in the newest image. Followed
    by Answered or CallFailed.
    """

    request: int
    broker_id: BrokerId
    parts: tuple[MarkerPart, ...]


@dataclass(frozen=True, slots=True)
class AbandonRequest:
    """Stop waiting for the answer: the broker leads no partition of the request any longer."""

    request: int


@dataclass(frozen=True, slots=True)
class Report:
    """Every marker of one effect is written, or its partition is gone."""

    shard: int
    report: MarkersWritten
    took_ms: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """A partition has markers of a later owner: it refuses every marker of this one."""

    shard: int
    owner_epoch: int


@dataclass(frozen=True, slots=True)
class PartitionsGone:
    """Some partitions of a transaction were deleted. For the log."""

    transactional_id: str
    count: int


@dataclass(frozen=True, slots=True)
class MarkerRefused:
    """A broker did not write one marker. For the log."""

    broker_id: BrokerId
    effect: SendMarkers
    partition: TopicPartition
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class BrokerFailed:
    """First of several requests in a row without an answer. For the log."""

    broker_id: BrokerId
    reason: str


@dataclass(frozen=True, slots=True)
class BrokerRecovered:
    """First answer after BrokerFailed. For the log."""

    broker_id: BrokerId


Notice = PartitionsGone | MarkerRefused | BrokerFailed | BrokerRecovered
Effect = WriteMarkers | AbandonRequest | Report | Fenced | Notice
