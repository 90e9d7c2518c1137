"""Calls to brokers: ends of transactions, and share-partitions with dead letters."""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from share_coordinator.core.effects import TransactionsEnded
from share_coordinator.shell import broker_calls
from share_coordinator.shell.broker_calls import BrokerCalls
from tidemark.model.ids import NO_BROKER, LeaderEpoch, ProducerEpoch, ProducerId
from tidemark.model.metadata import ClusterImage
from tidemark.model.share_state import SharePartitionKey, TransactionKey
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.metadata_cache import MetadataCache
from unit.share_coordinator.shell.group_brokers import GroupBroker, group_broker
from unit.txn_coordinator.marker_images import image_of
from waiting import patience, until


class SlowBroker(GroupBroker):
    """Answers a notice once ``other`` has had its own."""

    other: GroupBroker
    notices = 0

    async def TransactionEnded(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.notices += 1
        await until(lambda: bool(self.other.ended))
        return await super().TransactionEnded(request, context)


def test_each_leader_loads_its_share_partitions_with_dead_letters() -> None:
    async def main() -> None:
        async with patience(), group_broker() as one, asyncio.TaskGroup() as tasks:
            image = image_of(1, {1: one.endpoint}, {"orders": (1, -1)})
            (topic,) = image.topics.values()
            metadata = MetadataCache(replace(image, topics_by_id={topic.topic_id: topic}))
            calls = BrokerCalls(metadata, ChannelPool())
            running = tasks.create_task(calls.run())
            await asyncio.sleep(0)
            keys = [SharePartitionKey(g, topic.topic_id, n) for g in ("g", "h") for n in (0, 1)]
            calls.load_windows(keys)
            await until(lambda: bool(one.loaded))
            assert [group.group_id for group in one.loaded[0].groups] == ["g", "h"]
            assert [list(group.topics[0].partitions) for group in one.loaded[0].groups] == [[0]] * 2
            running.cancel()

    asyncio.run(main())


def test_leaders_are_notified_of_an_end_at_the_same_time() -> None:
    async def main() -> None:
        slow = SlowBroker()
        async with (
            patience(),
            group_broker(slow),
            group_broker() as slow.other,
            asyncio.TaskGroup() as tasks,
        ):
            endpoints = {1: slow.endpoint, 2: slow.other.endpoint}
            image = image_of(1, endpoints, {"orders": (1, 2)})
            (topic,) = image.topics.values()
            metadata = MetadataCache(replace(image, topics_by_id={topic.topic_id: topic}))
            keys = tuple(SharePartitionKey("g", topic.topic_id, one) for one in (0, 1))
            calls = BrokerCalls(metadata, ChannelPool())
            running = tasks.create_task(calls.run())
            await asyncio.sleep(0)
            transaction = TransactionKey(ProducerId(1), ProducerEpoch(0))
            answered: list[bool] = []
            ended = TransactionsEnded(transaction, True, keys, (LeaderEpoch(1), LeaderEpoch(1)))
            calls.transaction_ended(ended, lambda: answered.append(bool(slow.ended)))
            await until(lambda: bool(answered))
            assert answered == [True]
            assert slow.notices == 1, "no notice waits for another leader's time-out"
            running.cancel()

    asyncio.run(main())


def test_a_notice_beyond_the_bound_waits_and_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_calls, "NOTICES_MAX", 1)

    async def main() -> None:
        async with patience(), group_broker() as leader, asyncio.TaskGroup() as tasks:
            endpoints = {1: leader.endpoint}
            metadata = MetadataCache(led_by(NO_BROKER, endpoints, epoch=1))
            (topic_id,) = metadata.image.topics_by_id
            calls = BrokerCalls(metadata, ChannelPool())
            running = tasks.create_task(calls.run())
            await asyncio.sleep(0)
            keys, answered = (SharePartitionKey("g", topic_id, 0),), list[int]()
            for one in range(3):
                transaction = TransactionKey(ProducerId(one), ProducerEpoch(0))
                ended = TransactionsEnded(transaction, True, keys, (LeaderEpoch(1),))
                calls.transaction_ended(ended, partial(answered.append, one))
            metadata.take(led_by(1, endpoints, epoch=2))
            await until(lambda: answered == [0, 1, 2])
            running.cancel()

    asyncio.run(main())


def test_an_earlier_leader_does_not_answer_for_one_that_has_read_the_state() -> None:
    """Metadata may come later than the next leader: it holds the records, and must be notified."""

    async def main() -> None:
        async with (
            patience(),
            group_broker() as before,
            group_broker() as now,
            asyncio.TaskGroup() as tasks,
        ):
            endpoints = {1: before.endpoint, 2: now.endpoint}
            metadata = MetadataCache(led_by(1, endpoints, epoch=1))
            (topic_id,) = metadata.image.topics_by_id
            calls = BrokerCalls(metadata, ChannelPool())
            running = tasks.create_task(calls.run())
            await asyncio.sleep(0)
            transaction = TransactionKey(ProducerId(1), ProducerEpoch(0))
            keys = (SharePartitionKey("g", topic_id, 0),)
            answered: list[bool] = []
            ended = TransactionsEnded(transaction, True, keys, (LeaderEpoch(2),))
            calls.transaction_ended(ended, lambda: answered.append(True))
            await asyncio.sleep(0)  # the leaders are looked up
            await asyncio.sleep(0)
            metadata.take(led_by(2, endpoints, epoch=2))
            await until(lambda: bool(answered))
            assert (len(before.ended), len(now.ended)) == (0, 1)
            running.cancel()

    asyncio.run(main())


def led_by(leader: int, endpoints: dict[int, str], *, epoch: int) -> ClusterImage:
    """An image with one partition."""
    image = image_of(epoch, endpoints, {"orders": (leader,)})
    (topic,) = image.topics.values()
    (partition,) = topic.partitions
    led = replace(topic, partitions=(replace(partition, leader_epoch=LeaderEpoch(epoch)),))
    return replace(image, topics={led.name: led}, topics_by_id={led.topic_id: led})
