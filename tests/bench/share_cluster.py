"""One broker, a share-coordinator and a controller under measurement, and members of share groups
that look at no record.
"""

import struct
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
from bench.broker import BrokerUnderTest
from bench.processes import cpu_seconds
from e2e.kafka_wire import Wire
from e2e.share_wire import ACCEPT, Batch, ShareMember, ask, configure_group, find_coordinator
from prometheus_client.parser import text_string_to_metric_families
from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.dev.layout import Layout
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import write_request
from tidemark_wire.v1 import share_pb2 as pb
from tidemark_wire.v1 import share_pb2_grpc
from waiting import wait_for

COORDINATOR: Final = "share-coordinator-1"
WRITES: Final = "tidemark_share_requests_total"
WINDOW_RECORDS: Final = 10_000
SETTINGS: Final = {
    "group.share.partition.max.record.locks": WINDOW_RECORDS,
    "group.share.record.lock.duration.ms": 600_000,
    "group.share.max.record.lock.duration.ms": 600_000,
    "share.coordinator.state.topic.num.partitions": 3,
    "offsets.topic.num.partitions": 3,
}
FETCH: Final = int(ApiKey.SHARE_FETCH)
ACKNOWLEDGE: Final = int(ApiKey.SHARE_ACKNOWLEDGE)
VERSION: Final = 2
BYTES_MAX: Final = 8 << 20
WAIT_MS: Final = 30_000
LOOK_PARTITIONS: Final = 100
"""Share-partitions in one look at them: its answer is no part of the memory that is measured."""
_SIZE: Final = struct.Struct(">i")
_ROOM: Final = 1 << 20
_SKIPPED: Final = memoryview(bytearray(_ROOM))
_ERROR: Final = struct.Struct(">h")
_ERROR_AT: Final = 9  # behind correlation id, tags and throttle time


class ShareUnderTest(BrokerUnderTest):
    """The broker, and the coordinator of its share groups."""

    def cpu(self) -> tuple[float, float]:
        """CPU seconds so far of broker and coordinator."""
        return cpu_seconds(self.pid), cpu_seconds(self.cluster.pid(COORDINATOR))

    def writes(self) -> float:
        """Writes of state that the coordinator has answered."""
        port = self.cluster.layout.member(COORDINATOR).ports["ops"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        samples = [sample for one in text_string_to_metric_families(text) for sample in one.samples]
        return sum(
            one.value
            for one in samples
            if one.name == WRITES and one.labels.get("rpc") == "WriteStates"
        )

    def group(self, topic: str, **configs: str) -> str:
        """A new group that reads a topic from the beginning."""
        name = uuid.uuid4().hex
        with Wire(self.port) as wire:
            find_coordinator(wire, name)
            configure_group(wire, name, share_auto_offset_reset="earliest", **configs)
        member = FastMember(self.port, name, topic)
        member.join()
        member.wire.socket.close()
        return name

    def wait_until_loaded(self, group: str, topic_id: bytes, partitions: int) -> None:
        """Wait until the broker has the state of share-partitions, which it was asked to load."""
        port = self.cluster.layout.member("broker-1").ports["grpc"]
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub: Any = share_pb2_grpc.SharePartitionsStub(channel)
            for first in range(0, partitions, LOOK_PARTITIONS):
                numbers = range(first, min(first + LOOK_PARTITIONS, partitions))
                topics = [pb.ShareTopicPartitions(topic_id=topic_id, partitions=numbers)]
                request = pb.DescribeShareLagsRequest(group_id=group, topics=topics)
                wait_for(partial(_all_begun, stub, request), "share-partitions to be loaded")

    def reader(self, group: str, topic: str) -> "FastMember":
        """One that reads; only the group's first member had to join, so that the topic is known."""
        return FastMember(self.port, group, topic)


def _all_begun(stub: Any, request: pb.DescribeShareLagsRequest) -> bool:
    """True if all have a start offset: a leader writes it as it loads a new one."""
    lags = stub.DescribeLags(request).lags
    return all(not one.error_code and one.start_offset >= 0 for one in lags)


@contextmanager
def share_cluster(directory: Path) -> Iterator[ShareUnderTest]:
    """Stopped at the end."""
    layout = Layout.on_free_ports(directory, brokers=1, controllers=1, share_coordinators=1)
    cluster = DevCluster(layout, overrides={"broker": SETTINGS})
    try:
        cluster.start()
        yield ShareUnderTest(cluster)
    finally:
        cluster.stop()


class FastMember(ShareMember):
    """A member that counts the bytes of answers, and knows what it must have acquired."""

    def fetch_bytes(
        self, partition: int, *, records: int = 500, accepts: tuple[Batch, ...] = (), **more: Any
    ) -> int:
        """One ShareFetch that accepts what an earlier one brought; the size of its answer."""
        self.begin_fetch(partition, records=records, accepts=accepts, **more)
        return self.end_fetch()

    def begin_fetch(
        self, partition: int, *, records: int, accepts: tuple[Batch, ...], **more: Any
    ) -> None:
        """Send it."""
        fields = {
            **self._session(),
            "max_wait": WAIT_MS,
            "min_bytes": 1,
            "max_bytes": BYTES_MAX,
            "max_records": records,
            "batch_size": WINDOW_RECORDS,
            "topics": self._topics({partition: accepts}) if accepts or not self.epoch else [],
            "forgotten_topics_data": [],
            **more,
        }
        self.wire.send(FETCH, VERSION, write_request(FETCH, VERSION, fields))

    def end_fetch(self) -> int:
        """Receive its answer, of which only the beginning is kept, as in the load of plain fetches;
        return its size.
        """
        head = memoryview(bytearray(_SIZE.size + _ERROR_AT + _ERROR.size))
        self._receive(head)
        (size,) = _SIZE.unpack_from(head)
        self._check(head[_SIZE.size :])
        left = size + _SIZE.size - len(head)
        while left:
            left -= self._receive_some(_SKIPPED[: min(left, _ROOM)])
        return int(size)

    def _receive(self, into: memoryview) -> None:
        """Fill ``into``."""
        while into:
            into = into[self._receive_some(into) :]

    def _receive_some(self, into: memoryview) -> int:
        received = self.wire.socket.recv_into(into)
        if not received:
            raise EOFError("the broker closed the connection")
        return received

    def accept(self, *batches: Batch, partition: int = 0) -> None:
        """One ShareAcknowledge."""
        self.begin_accept(*batches, partition=partition)
        self.end_accept()

    def begin_accept(self, *batches: Batch, partition: int = 0) -> None:
        """Send it."""
        fields = {**self._session(), "topics": self._topics({partition: batches})}
        self.wire.send(ACKNOWLEDGE, VERSION, write_request(ACKNOWLEDGE, VERSION, fields))

    def end_accept(self) -> None:
        """Receive its answer."""
        self._check(self.wire.receive_frame())

    def _check(self, frame: bytes | memoryview) -> None:
        (code,) = _ERROR.unpack_from(frame, _ERROR_AT)
        assert code == 0, code
        self.epoch += 1

    def settle(self, partition: int = 0) -> None:
        """Open the session, and wait until the leader has loaded the state."""
        deadline = time.monotonic() + 60
        while self.fetch_answer(*([partition] if not self.epoch else []), wait_ms=100).responses:
            assert time.monotonic() < deadline, "a fetch before there are records"
        assert self._has_start(partition), "the group has no start offset"

    def _has_start(self, partition: int) -> bool:
        fields = {"groups": [{"group_id": self.group, "topics": None}]}
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            (group,) = ask(self.wire, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, fields).groups
            found = {one.partition_index for topic in group.topics for one in topic.partitions}
            if partition in found:
                return True
        return False


def accepted(first: int, last: int) -> Batch:
    """One range, accepted as a whole."""
    return (first, last, ACCEPT)
