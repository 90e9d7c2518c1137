"""The synchronous share consumer."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, overload

from tidemark.client.config import ShareConsumerConfig
from tidemark.client.share.deliveries import ShareRecord
from tidemark.client.share.factory import GroupType, is_share
from tidemark.client.share.share_consumer import ShareConsumer as AsyncShareConsumer
from tidemark.client.sync.consumer import Consumer
from tidemark.client.sync.loop import SyncClient, blocking, immediate


class ShareConsumer(SyncClient[AsyncShareConsumer]):
    """``tidemark.client.ShareConsumer`` without ``await``. Callbacks are called in the thread of
    the consumer, and must not call it.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ShareConsumerConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            lambda: AsyncShareConsumer(bootstrap_servers, config, **settings),
            name="tidemark-share-consumer",
        )

    subscribe = immediate(AsyncShareConsumer.subscribe)
    subscription = immediate(AsyncShareConsumer.subscription)
    unsubscribe = blocking(AsyncShareConsumer.unsubscribe)
    assignment = immediate(AsyncShareConsumer.assignment)

    @property
    def member_id(self) -> str:
        """Id of this member of the group."""
        return self._target.member_id

    @property
    def lock_timeout_ms(self) -> int | None:
        """Time after which an acquired record is available to others; None before the first
        answer of a broker.
        """
        return self._target.lock_timeout_ms

    poll = blocking(AsyncShareConsumer.poll)
    acknowledge = immediate(AsyncShareConsumer.acknowledge)
    commit_sync = blocking(AsyncShareConsumer.commit_sync)
    commit_async = immediate(AsyncShareConsumer.commit_async)
    on_acknowledged = immediate(AsyncShareConsumer.on_acknowledged)

    def __iter__(self) -> Iterator[ShareRecord]:
        """Yield records without end, each as a poll of its own."""
        while True:
            yield self._thread.call(self._target.__anext__())


@overload
def make_consumer(
    bootstrap_servers: str | Sequence[str], *, group_type: Literal["share"], **settings: Any
) -> ShareConsumer: ...


@overload
def make_consumer(
    bootstrap_servers: str | Sequence[str],
    *,
    group_type: Literal["classic", "consumer"] = "consumer",
    **settings: Any,
) -> Consumer: ...


def make_consumer(
    bootstrap_servers: str | Sequence[str], *, group_type: GroupType = "consumer", **settings: Any
) -> Consumer | ShareConsumer:
    """Make a consumer of a group of this type, as ``tidemark.client.make_consumer``."""
    if is_share(group_type):
        return ShareConsumer(bootstrap_servers, **settings)
    return Consumer(bootstrap_servers, **settings)
