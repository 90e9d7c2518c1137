"""WatchMetadata: updates of the feed, and the subscriber's acknowledgements."""

import asyncio
from collections.abc import AsyncIterator

from tidemark_wire.v1 import controller_pb2 as pb

from controller.shell.metadata_feed import Subscription
from controller.shell.node import ControllerNode
from controller.shell.rpc.call import Context
from controller.shell.wire_mapping import read_applied, read_subscriber, write_last_update


async def handle(
    node: ControllerNode,
    requests: AsyncIterator[pb.WatchMetadataRequest],
    context: Context,
) -> None:
    """Send updates until the subscriber leaves, or until an update ends the stream."""
    first = await anext(aiter(requests), None)
    if first is None:
        return
    subscriber = read_subscriber(first)
    with node.feed.subscribe(
        subscriber.name,
        subscriber.broker_epoch,
        answers_heartbeats=subscriber.answers_heartbeats,
        takes_partitions=subscriber.takes_partitions,
    ) as subscription:
        async with asyncio.TaskGroup() as tasks:
            listener = tasks.create_task(_listen(node, requests, subscription))
            await _send(node, context, subscription)
            listener.cancel()


async def _send(node: ControllerNode, context: Context, subscription: Subscription) -> None:
    while (update := await subscription.next_update(node.feed)) is not None:
        if (last := write_last_update(update, node.hint)) is not None:
            await context.write(last)
            return
        await context.write(update)


async def _listen(
    node: ControllerNode,
    requests: AsyncIterator[pb.WatchMetadataRequest],
    subscription: Subscription,
) -> None:
    async for request in requests:
        node.feed.acknowledge(subscription, read_applied(request))
    subscription.leave()
