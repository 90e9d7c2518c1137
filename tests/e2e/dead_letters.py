"""Topics, groups and queues of dead letters, and what committed readers find in a queue."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import grpc
from e2e import txn_wire
from e2e.clusters import Cluster
from e2e.kafka_wire import Wire
from e2e.share_wire import (
    ShareMember,
    configure_group,
    find_coordinator,
    port_of,
)
from tidemark.cli.share import admin
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import share_pb2 as pb
from tidemark_wire.v1 import share_pb2_grpc
from waiting import PATIENCE_S, wait_for

ENABLED = {"errors.deadletterqueue.group.enable": "true"}
RETRIED = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
QUICK = {"zookeeper.session.timeout.ms": 4_000}
BROKER: dict[str, Any] = {
    **QUICK,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "share.coordinator.state.topic.num.partitions": 2,
}


def create(
    cluster: Cluster,
    topic: str,
    *,
    replicas: Sequence[int] = (1,),
    configs: dict[str, str] | None = None,
) -> None:
    """Create a topic of one partition, which the first replica leads."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    made = confluent_kafka.admin.NewTopic(
        topic, 1, replica_assignment=[list(replicas)], config=configs or {}
    )
    admin.create_topics([made])[topic].result(PATIENCE_S)


class Letters:
    """A topic with records, a group that reads it, and its queue."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        queue: dict[str, str] | None = ENABLED,
        records: int = 10,
        replicas: Sequence[int] = (1,),
        has_record: bool = True,
    ) -> None:
        """``queue``: configuration of the queue's topic; None: there is none. It has the replicas
        of the topic in reverse order.
        """
        self.cluster = cluster
        name = uuid.uuid4().hex[:8]
        self.topic, self.group, self.queue = f"t-{name}", f"g-{name}", f"dlq.{name}"
        create(cluster, self.topic, replicas=replicas)
        if queue is not None:
            create(cluster, self.queue, replicas=replicas[::-1], configs=queue)
        self.wires: list[Wire] = []
        wire = self.connected()
        find_coordinator(wire, self.group)
        self.configure(
            share_auto_offset_reset="earliest",
            errors_deadletterqueue_topic_name=self.queue,
            errors_deadletterqueue_copy_record_enable=str(has_record).lower(),
        )
        self.put(records)

    def connected(self, broker: int = 1) -> Wire:
        self.wires.append(Wire(port_of(self.cluster.kafka(broker))))
        return self.wires[-1]

    def configure(self, **configs: str) -> None:
        configure_group(self.connected(), self.group, **configs)

    def end(self) -> None:
        for wire in self.wires:
            wire.socket.close()

    def put(self, count: int) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.cluster.bootstrap})
        for number in range(count):
            headers: list[tuple[str, str | bytes | None]] = [("own", b"%d" % number)]
            producer.produce(self.topic, b"v%d" % number, b"k%d" % number, headers=headers)
        assert producer.flush(PATIENCE_S) == 0

    def leader(self) -> int:
        """Broker that leads the topic's partition; -1: none."""
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        return int(
            admin.list_topics(self.topic, PATIENCE_S).topics[self.topic].partitions[0].leader
        )

    def member(self, broker: int = 1) -> ShareMember:
        made = ShareMember(port_of(self.cluster.kafka(broker)), self.group, self.topic)
        self.wires.append(made.wire)
        made.join()
        return made

    def reject(self, member: ShareMember, *spans: tuple[int, int]) -> None:
        """Reject records that a member holds."""
        answer = member.acknowledge(*((first, last, 3) for first, last in spans))
        assert answer is ErrorCode.NONE

    # -- transactions of members

    def begin(self) -> None:
        """Begin a session of the transactional id."""
        self.transaction = txn_wire.init(self.connected())

    def acknowledge(self, member: ShareMember, *batches: tuple[int, int, int]) -> None:
        """Acknowledge within the transaction."""
        wire = pb.AcknowledgeInTransactionRequest
        part = wire.Part(
            topic_id=member.topic_id,
            partition=0,
            batches=[
                {"first_offset": first, "last_offset": last, "type": kind}
                for first, last, kind in batches
            ],
        )
        request = wire(
            group_id=self.group,
            member_id=member.name,
            transactional_id="late",
            producer_id=self.transaction[0],
            producer_epoch=self.transaction[1],
            parts=[part],
        )

        def answered() -> Any:
            with grpc.insecure_channel(self.cluster.grpc(1)) as channel:
                stub: Any = share_pb2_grpc.ShareTransactionsStub(channel)
                found = stub.Acknowledge(request, timeout=PATIENCE_S)
            return None if found.error_code in RETRIED else found

        found = wait_for(answered, "an answer to an acknowledgement")
        assert [one.error_code for one in found.parts] == [0], found

    def finish(self, *, commit: bool) -> None:
        """End the transaction."""
        code, *_ = txn_wire.end(self.connected(), self.transaction, commit=commit)
        assert code is ErrorCode.NONE

    # -- what is there

    def lag(self) -> Any:
        """Counts of the share-partition, from its leader."""
        wire = self.connected()
        topic_id = wire.metadata(self.topic).topics[0].topic_id
        topic = pb.ShareTopicPartitions(topic_id=topic_id, partitions=[0])
        request = pb.DescribeShareLagsRequest(group_id=self.group, topics=[topic])
        with grpc.insecure_channel(self.cluster.grpc(1)) as channel:
            stub: Any = share_pb2_grpc.SharePartitionsStub(channel)
            return stub.DescribeLags(request, timeout=PATIENCE_S).lags[0]

    def problem(self) -> str:
        """Why the queue cannot be written."""
        return str(self.lag().dead_letter_problem)

    def described(self) -> str:
        """The problem as ``tidemark share describe`` shows it."""
        (row,) = asyncio.run(admin.describe(self.cluster.bootstrap, [self.group]))
        return str(row["partitions"][0]["dead_letter_problem"])

    def archiving(self) -> int:
        """Number of letters that are not copied."""
        return int(self.lag().archiving)

    def mend(self, queue: dict[str, str] | None) -> None:
        """Make a topic that can be the queue of what is there."""
        if queue is None:
            create(self.cluster, self.queue, configs=ENABLED)
            return
        changes = {"errors.deadletterqueue.group.enable": "true", "cleanup.policy": "delete"}
        changes["max.message.bytes"] = "1000000"
        resource = confluent_kafka.admin.ConfigResource("topic", self.queue)
        for name, value in changes.items():
            resource.add_incremental_config(
                confluent_kafka.admin.ConfigEntry(
                    name, value, incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET
                )
            )
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    def committed(self) -> list[confluent_kafka.Message]:
        """Letters that a reader of committed records finds."""
        return committed(self.cluster, self.queue)

    def offsets(self) -> Counter[int]:
        """Number of letters of each offset of the topic."""
        found: Counter[int] = Counter()
        for message in self.committed():
            headers = dict(message.headers() or [])
            found[int(headers["__dlq.errors.offset"] or -1)] += 1
        return found

    def wait_for_letters(self, offsets: Sequence[int]) -> None:
        """Wait until the queue has these letters; each must be there once."""
        wait_for(lambda: set(self.offsets()) >= set(offsets), lambda: f"{self.offsets()}")
        assert self.offsets() == Counter(offsets)


def committed(cluster: Cluster, topic: str) -> list[confluent_kafka.Message]:
    """All committed records of partition 0."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"looks-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found = []
        while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
            found.append(message)
    finally:
        consumer.close()
    return found
