"""Membership of a coordinator replica, without ZooKeeper and a controller."""

import asyncio
from dataclasses import replace
from typing import Any

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import ClusterImage
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.producer_ids import ProducerIdBlock


class Member:
    """The one replica of a cluster whose metadata a test changes."""

    def __init__(self, kind: str, image: ClusterImage) -> None:
        self.kind = kind
        self.image = image
        self.owner_epoch = 0
        self.blocks = 0
        self.has_controller = True
        self._metadata: MetadataCache | None = None

    async def run(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        metadata.take(self.image)
        await asyncio.Event().wait()

    def show(self, **changes: Any) -> None:
        position = self.image.position
        moved = position._replace(version=position.version + 1)
        self.image = replace(self.image, position=moved, **changes)
        assert self._metadata is not None
        self._metadata.take(self.image)

    def problem(self) -> str | None:
        return None

    def owned_shards(self) -> frozenset[int]:
        owners = self.image.shards.get(self.kind, ())
        return frozenset(one.shard for one in owners if one.coordinator_id == 1)

    async def acquire(self, shard: int) -> int:
        self.owner_epoch += 1
        return self.owner_epoch

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        if not self.has_controller:
            raise TidemarkError(ErrorCode.REQUEST_TIMED_OUT, "no controller")
        self.blocks += 1
        return ProducerIdBlock(self.blocks * 1_000, 1_000)
