"""Calls to brokers: ends of transactions, and share-partitions with dead letters."""

import asyncio
from dataclasses import replace
from typing import Any

from share_coordinator.core.effects import TransactionsEnded
from share_coordinator.shell.broker_calls import BrokerCalls
from tidemark.model.ids import ProducerEpoch, ProducerId
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
            ended = TransactionsEnded(transaction, commits=True, keys=keys)
            calls.transaction_ended(ended, lambda: answered.append(bool(slow.ended)))
            await until(lambda: bool(answered))
            assert answered == [True]
            assert slow.notices == 1, "no notice waits for another leader's time-out"
            running.cancel()

    asyncio.run(main())
