"""WatchMetadata: the feed, and the subscriber's acknowledgements on the way back."""

import asyncio
from collections.abc import AsyncIterator

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch
from tidemark.runtime.metadata_wire import read_position
from tidemark_wire.v1 import controller_pb2 as pb

from controller.shell.metadata_feed import Subscription
from controller.shell.node import ControllerNode
from controller.shell.rpc.call import Context
from controller.shell.wire_mapping import hint_for


async def handle(
    node: ControllerNode,
    requests: AsyncIterator[pb.WatchMetadataRequest],
    context: Context,
) -> None:
    """Send until the subscriber goes, or until an update says why it must."""
    first = await anext(aiter(requests), None)
    if first is None:
        return
    broker_epoch = BrokerEpoch(first.broker_epoch)
    with node.feed.subscribe(
        first.subscriber,
        broker_epoch,
        answers_heartbeats=first.answers_heartbeats,
        takes_partitions=first.takes_partitions,
    ) as subscription:
        async with asyncio.TaskGroup() as tasks:
            listener = tasks.create_task(_listen(node, requests, subscription))
            await _send(node, context, subscription)
            listener.cancel()


async def _send(node: ControllerNode, context: Context, subscription: Subscription) -> None:
    while (update := await subscription.next_update(node.feed)) is not None:
        if update.error_code:
            code = ErrorCode(update.error_code)
            hint = update.controller_hint or hint_for(code, node.hint)
            await context.write(pb.MetadataUpdate(error_code=code, controller_hint=hint))
            return
        await context.write(update)


async def _listen(
    node: ControllerNode,
    requests: AsyncIterator[pb.WatchMetadataRequest],
    subscription: Subscription,
) -> None:
    async for request in requests:
        node.feed.acknowledge(subscription, read_position(request.applied))
    subscription.leave()
