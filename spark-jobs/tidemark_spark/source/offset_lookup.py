"""Lookups of the driver: which topics exist, and their first, last and committed offsets."""

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Final

from tidemark.client.config import AdminConfig
from tidemark.client.consumer.positions import OffsetSpec
from tidemark.client.deadline import Deadline
from tidemark.client.errors import ClientError, UnknownTopicOrPartitionError
from tidemark.client.sync import Admin
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock

from tidemark_spark.errors import DataLossError, OptionError, SourceError
from tidemark_spark.source.offset_ranges import Topic, partitions_of
from tidemark_spark.source.read_options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Assign,
    AtTimestamp,
    Bound,
    Edge,
    PerPartition,
    PerPartitionTimestamp,
    ReadOptions,
    Subscribe,
    SubscribePattern,
)

_RETRY_S: Final = 0.1
_log = logging.getLogger(__name__)
Positions = dict[TopicPartition, int]
_SPECS: Final[Mapping[Edge, OffsetSpec]] = {
    Edge.EARLIEST: OffsetSpec.EARLIEST,
    Edge.LATEST: OffsetSpec.LATEST,
}
_ENDS: Final[Mapping[int, OffsetSpec]] = {
    EARLIEST_OFFSET: OffsetSpec.EARLIEST,
    LATEST_OFFSET: OffsetSpec.LATEST,
}
LOSS_HINT: Final = (
    "failOnDataLoss=false to continue with what is left, or a new checkpoint location to start over"
)


@contextmanager
def as_source_error(doing: str) -> Iterator[None]:
    """Raise a client's error within the block as a SourceError."""
    try:
        yield
    except ClientError as problem:
        what, _, hint = str(problem).partition("; ")
        raise SourceError(f"{doing}: {what}", hint) from problem


class Grace:
    """The time for which a missing topic, partition or offset is looked up again.

    A broker whose metadata lags, or which has just become leader, may answer with an old state.
    """

    def __init__(self, allowed_ms: int) -> None:
        self._clock = Clock()
        self._deadline = Deadline.after(allowed_ms, self._clock.now_ms())

    def wait(self) -> bool:
        """Wait before the next attempt; False if the time is over and the answer is final."""
        if self._deadline.passed(self._clock.now_ms()):
            return False
        time.sleep(_RETRY_S)
        return True


class OffsetLookup:
    """Lookup of topics and offsets. It connects at the first lookup and belongs to one process."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._admin: Admin | None = None

    def close(self) -> None:
        """Close connections."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def topics(self, *, known: Iterable[str] = ()) -> dict[str, Topic]:
        """Return the existing topics and partitions that the query selects.

        Raises OptionError for a topic that does not exist, unless it is in ``known``: the query has
        read it before, so it was deleted, which the caller treats as a loss.
        """
        selection = self._options.selection
        if isinstance(selection, SubscribePattern):
            return self._matching(selection)
        if isinstance(selection, Subscribe):
            return self._named(selection.topics, known)
        return self._assigned(selection, known)

    def positions(
        self, partitions: Iterable[TopicPartition], spec: int | Mapping[TopicPartition, int]
    ) -> Positions:
        """Look up offsets by timestamp in ms or by OffsetSpec, one for all partitions or one each.

        The offset is -1 if no record of the partition is at least as new as the timestamp.
        """
        queries = {
            partition: spec if isinstance(spec, int) else spec[partition]
            for partition in partitions
        }
        return self._looked_up(queries, read_committed=self._options.read_committed)

    def earliest(self, partitions: Iterable[TopicPartition]) -> Positions:
        """Look up the first offset of each log."""
        return self.positions(partitions, OffsetSpec.EARLIEST)

    def latest(self, partitions: Iterable[TopicPartition]) -> Positions:
        """Look up the end: the last stable offset, or the high watermark with read_uncommitted."""
        return self.positions(partitions, OffsetSpec.LATEST)

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> Positions:
        """Look up the end of what is in each log, readable or not yet."""
        queries = dict.fromkeys(partitions, int(OffsetSpec.LATEST))
        return self._looked_up(queries, read_committed=False)

    def starting(self, topics: Mapping[str, Topic]) -> Positions:
        """Look up the offsets at which the query starts. Raises DataLossError, OptionError."""
        partitions = partitions_of(topics)
        found = self._bound(self._options.starting, partitions)
        late = [partition for partition in partitions if found[partition] < 0]
        if late and not self._options.young_start_is_latest:
            raise OptionError(
                f"{late[0]} has no record as new as the starting timestamp",
                "startingOffsetsByTimestampStrategy=latest to start at the end of the partition",
            )
        found |= self.latest(late)
        if isinstance(self._options.starting, Edge) and (
            self._options.starting is not Edge.COMMITTED
        ):
            return found
        return self._within(found, "starts", self.high_watermarks)

    def ending(self, topics: Mapping[str, Topic]) -> Positions:
        """Look up the offsets at which a batch query ends, and wait until they are stable.

        Raises DataLossError, OptionError; SourceError if a transaction stays open before an end.
        """
        partitions = partitions_of(topics)
        found = self._bound(self._options.ending, partitions)
        young = [partition for partition in partitions if found[partition] < 0]
        found |= self.latest(young)
        if not isinstance(self._options.ending, PerPartition):
            return found
        found = self._within(found, "ends", self.high_watermarks)
        if self._options.read_committed:
            self._wait_until_stable(found)
        return found

    def report_losses(self, losses: Iterable[str]) -> None:
        """Raise DataLossError, or log a warning if failOnDataLoss is false."""
        found = list(losses)
        if not found:
            return
        text = "; ".join(found)
        if self._options.fail_on_data_loss:
            raise DataLossError(f"records were lost before they were read: {text}", LOSS_HINT)
        _log.warning("records were lost before they were read (failOnDataLoss is false): %s", text)

    def grace(self) -> "Grace":
        """Start a grace period for answers of brokers that lag behind."""
        default = AdminConfig().unknown_topic_grace_ms
        return Grace(self._options.client.get("unknown_topic_grace_ms", default))

    def _client(self) -> Admin:
        if self._admin is None:
            known = {setting.name for setting in fields(AdminConfig)}
            settings = {name: to for name, to in self._options.client.items() if name in known}
            with as_source_error(f"connecting to {self._options.bootstrap_servers}"):
                self._admin = Admin(self._options.bootstrap_servers, transport="grpc", **settings)
        return self._admin

    def _matching(self, selection: SubscribePattern) -> dict[str, Topic]:
        with as_source_error("listing topics"):
            views = self._client().describe_topics()
        return {
            name: Topic(view.topic_id.hex(), tuple(range(len(view.partitions))))
            for name, view in sorted(views.items())
            if not view.is_internal and re.fullmatch(selection.pattern, name)
        }

    def _named(self, names: Iterable[str], known: Iterable[str]) -> dict[str, Topic]:
        wanted, known = list(names), set(known)
        grace = self.grace()
        while True:
            found = self._described(wanted)
            wrong = [name for name in wanted if name not in found and name not in known]
            if not wrong:
                return found
            if not grace.wait():
                raise OptionError(
                    f"topic {wrong[0]!r} does not exist",
                    "check the name, or create the topic first (tidemark topic create)",
                )

    def _described(self, names: list[str]) -> dict[str, Topic]:
        """Describe the topics that exist. If all exist, as usual, this takes one request."""
        try:
            with as_source_error(f"reading {', '.join(names)}"):
                views = self._client().describe_topics(names)
        except SourceError as problem:
            if not isinstance(problem.__cause__, UnknownTopicOrPartitionError):
                raise
            if len(names) == 1:
                return {}
            each = (self._described([name]) for name in names)
            return {name: topic for found in each for name, topic in found.items()}
        return {
            name: Topic(view.topic_id.hex(), tuple(range(len(view.partitions))))
            for name, view in views.items()
        }

    def _assigned(self, selection: Assign, known: Iterable[str]) -> dict[str, Topic]:
        names = dict.fromkeys(partition.topic for partition in selection.partitions)
        found = self._named(names, known)
        for name, topic in found.items():
            wanted = [each.partition for each in selection.partitions if each.topic == name]
            missing = sorted(set(wanted) - set(topic.partitions))
            if missing:
                raise OptionError(
                    f"topic {name!r} has no partition {missing[0]}",
                    f"select from partitions 0 to {len(topic.partitions) - 1}",
                )
            found[name] = topic._replace(partitions=tuple(wanted))
        return found

    def _bound(self, bound: Bound, partitions: list[TopicPartition]) -> Positions:
        if isinstance(bound, AtTimestamp):
            return self.positions(partitions, bound.timestamp_ms)
        if isinstance(bound, PerPartitionTimestamp):
            _check_all_named(bound.timestamps_ms, partitions)
            return self.positions(partitions, bound.timestamps_ms)
        if isinstance(bound, PerPartition):
            _check_all_named(bound.offsets, partitions)
            return self._at_offsets(bound.offsets, partitions)
        if bound is Edge.COMMITTED:
            return self._committed(partitions)
        return self.positions(partitions, _SPECS[bound])

    def _at_offsets(
        self, offsets: Mapping[TopicPartition, int], partitions: list[TopicPartition]
    ) -> Positions:
        ends = {each: _ENDS[offsets[each]] for each in partitions if offsets[each] in _ENDS}
        return {each: offsets[each] for each in partitions} | self.positions(ends, ends)

    def _committed(self, partitions: list[TopicPartition]) -> Positions:
        group_id = self._options.group_id
        assert group_id is not None, "checked with the options"
        with as_source_error(f"reading the offsets of group {group_id!r}"):
            # A batch of the query before may be committed without having reached the group yet.
            committed = self._client().list_group_offsets(
                group_id, partitions, require_stable=self._options.read_committed
            )
        found = {each: committed[each].offset for each in partitions if each in committed}
        fresh = [each for each in partitions if each not in found]
        return found | self.positions(fresh, _SPECS[self._options.default_edge])

    def _looked_up(
        self, queries: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> Positions:
        if not queries:
            return {}
        with as_source_error("looking up offsets"):
            found = self._client().list_offsets(queries, read_committed=read_committed)
        return {partition: place.offset for partition, place in found.items()}

    def _wait_until_stable(self, ends: Positions) -> None:
        """Wait for transactions that are open before these offsets: their records are not lost, and
        the query would leave out those which are committed later.
        """
        default = AdminConfig().default_api_timeout_ms
        allowed_ms = self._options.client.get("default_api_timeout_ms", default)
        patience = Grace(allowed_ms)
        while True:
            stable = self.latest(ends)
            behind = sorted(each for each, at in ends.items() if at > stable[each])
            if not behind:
                return
            if not patience.wait():
                first = behind[0]
                raise SourceError(
                    f"the query ends at offset {ends[first]} of {first}, and a transaction that"
                    f" holds records from {stable[first]} on is still open after {allowed_ms} ms",
                    "read again when it has ended (tidemark txn holders -t"
                    f" {first.topic} shows it), raise client.default_api_timeout_ms, or set"
                    " isolation.level=read_uncommitted",
                )

    def _within(
        self, found: Positions, verb: str, look_up: Callable[[Iterable[TopicPartition]], Positions]
    ) -> Positions:
        """Report offsets outside of the log as losses; return the nearest offsets within it.

        ``look_up`` returns the ends of the logs. An end counts as too low only after the grace
        period: a leader that has been replaced and does not know it yet returns an old one.
        """
        earliest, latest = self.earliest(found), look_up(found)
        grace = self.grace()
        while any(at > latest[partition] for partition, at in found.items()) and grace.wait():
            latest = look_up(found)
        losses = [
            f"the query {verb} at offset {at} of {partition}, and the log contains offsets"
            f" {earliest[partition]} to {latest[partition]}"
            for partition, at in found.items()
            if not earliest[partition] <= at <= latest[partition]
        ]
        self.report_losses(losses)
        return {
            partition: min(max(at, earliest[partition]), latest[partition])
            for partition, at in found.items()
        }


def _check_all_named(
    named: Mapping[TopicPartition, int], partitions: Iterable[TopicPartition]
) -> None:
    wanted = set(partitions)
    missing, extra = sorted(wanted - set(named)), sorted(set(named) - wanted)
    if missing:
        raise OptionError(
            f"there is no offset or timestamp for {', '.join(map(str, missing))}",
            "give one for every partition; offset -2 is the earliest, -1 the latest",
        )
    if extra:
        raise OptionError(
            f"there are offsets or timestamps for {', '.join(map(str, extra))}, which the query"
            " does not read",
            "give them only for partitions that exist and are subscribed to",
        )
