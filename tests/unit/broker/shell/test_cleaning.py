"""Compaction's bookkeeping around what happens to topics."""

from broker.shell.cleaning import Cleaning
from broker.storage import checkpoint
from broker.storage.compaction import CHECKPOINT_NAME
from tidemark.model.topics import TopicPartition
from tidemark.runtime.worker_pool import WorkerPool
from unit.broker.shell.node_worlds import World, topic


def test_a_recreated_topic_is_not_taken_for_clean() -> None:
    one = World()
    disk, orders = one.disks[0], TopicPartition("orders", 0)
    one.show(topic())
    checkpoint.write_offsets(disk, CHECKPOINT_NAME, {orders: 7}, sync=False)
    Cleaning(one.node, WorkerPool(), lambda disk: lambda: disk)
    one.change(topics_changed=(topic(number=2),), topics_deleted=(topic().topic_id,))
    assert orders not in checkpoint.read_offsets(disk, CHECKPOINT_NAME)
