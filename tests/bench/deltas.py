"""What one event of one partition costs the loops of a broker and of a controller, and for how long
the first image holds a broker's loop: CPU times, over disks in memory.
"""

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from bench.report import Row
from broker.config import BrokerConfig
from broker.storage.log_manager import LogManager
from controller.shell.metadata_feed import FeedLimits, MetadataFeed
from tidemark.model import ids
from tidemark.model.metadata import (
    ClusterDelta,
    ClusterImage,
    FeedPosition,
    PartitionImage,
    TopicImage,
)
from tidemark.runtime.clock import Clock
from tidemark.runtime.event_loop import collect_young_garbage_only
from tidemark.runtime.metadata_wire import apply_update, delta_update, snapshot_update
from tidemark.storage.mem_disk import MemDisk
from tidemark_wire.v1 import controller_pb2 as pb
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.broker_worlds import hosting_of

WIDE: Final = 5_000
LOADED: Final = 10_000
EVENTS: Final = 50
EVENT_MS_MAX: Final = 1.0
STEP_MS_MAX: Final = 20.0
US: Final = ids.BrokerId(1)
CONTROLLER: Final = ids.ControllerId(1)


def bench_deltas() -> list[Row]:
    """One partition's ISR changes in a wide topic; then a large first image."""
    collect_young_garbage_only()
    group = "metadata: CPU of a loop"
    image = image_of(WIDE)
    parts = broker_with(image)
    broker_ms, controller_ms, sent_bytes = [], [], 0
    for number in range(EVENTS):
        changed, delta = one_isr_change(image, number)
        update, encode_ms = published(image, changed, delta)
        wire = update.SerializeToString()
        sent_bytes = len(wire)
        started = time.process_time()
        exhaust(take(parts, pb.MetadataUpdate.FromString(wire)))
        broker_ms.append((time.process_time() - started) * 1_000)
        controller_ms.append(encode_ms)
        image = changed
    event = Row(group, f"ISR change of 1 of {WIDE:,} partitions")
    event.extra = {
        "broker_ms": statistics.median(broker_ms),
        "feed_ms": statistics.median(controller_ms),
        "bytes": sent_bytes,
    }
    event.bound = f"<{EVENT_MS_MAX:.0f} ms of the broker"
    event.held = statistics.median(broker_ms) < EVENT_MS_MAX
    steps = step_times(image_of(LOADED))
    first = Row(group, f"first image, {LOADED:,} partitions")
    first.extra = {"longest_step_ms": max(steps), "total_ms": sum(steps), "steps": len(steps)}
    first.bound, first.held = f"<{STEP_MS_MAX:.0f} ms a step", max(steps) < STEP_MS_MAX
    return [event, first]


def image_of(partitions: int) -> ClusterImage:
    """One topic, whose partitions the broker leads."""
    states = tuple(
        PartitionImage(number, (US,), (US,), US, ids.LeaderEpoch(1), ids.PartitionEpoch(0))
        for number in range(partitions)
    )
    topic = TopicImage("wide", ids.TopicId(bytes(range(16))), {}, states)
    return ClusterImage(
        FeedPosition(ids.ControllerEpoch(1), 1),
        topics={topic.name: topic},
        topics_by_id={topic.topic_id: topic},
    )


def one_isr_change(image: ClusterImage, number: int) -> tuple[ClusterImage, ClusterDelta]:
    """The image after it, and the change as the controller decides it: a whole topic."""
    topic = image.topics["wide"]
    old = topic.partitions[number]
    new = replace(old, partition_epoch=ids.PartitionEpoch(old.partition_epoch + 1))
    partitions = (*topic.partitions[:number], new, *topic.partitions[number + 1 :])
    delta = ClusterDelta(topics_changed=(replace(topic, partitions=partitions),))
    position = image.position._replace(version=image.position.version + 1)
    return image.apply(delta, position, CONTROLLER), delta


def published(
    image: ClusterImage, changed: ClusterImage, delta: ClusterDelta
) -> tuple[pb.MetadataUpdate, float]:
    """What the feed sends to a broker, and the milliseconds of making it."""
    feed = MetadataFeed(FeedLimits(4, 4))
    feed.open(image)
    with feed.subscribe("broker-1", ids.BrokerEpoch(-1), takes_partitions=True):
        started = time.process_time()
        feed.publish(delta, changed)
        took_ms = (time.process_time() - started) * 1_000
    return delta_update(delta.narrowed(image), changed.position, CONTROLLER), took_ms


def broker_with(image: ClusterImage | None) -> BrokerParts:
    """A broker over a disk in memory, that hosts all of an image."""
    clock = Clock()
    manager = LogManager.open(
        MemDisk(),
        cluster_id="bench",
        broker_id=int(US),
        directory_id="d",
        boot_id="b",
        now_ms=clock.wall_ms(),
    )
    parts = BrokerParts(BrokerConfig(broker_id=int(US)), (manager,), clock=clock)
    hosting_of(parts)
    if image is not None:
        parts.metadata.take(image)
    return parts


def take(parts: BrokerParts, update: pb.MetadataUpdate) -> Iterator[None]:
    """What the metadata follower does with an update, in its steps."""
    image, delta = yield from apply_update(parts.metadata.image, update)
    yield
    yield from parts.metadata.steps(image, delta)


def exhaust(steps: Iterator[None]) -> None:
    """To the end."""
    for _ in steps:
        pass


def step_times(image: ClusterImage) -> list[float]:
    """Milliseconds of each step of taking a first image."""
    parts, times = broker_with(None), []
    update = pb.MetadataUpdate.FromString(snapshot_update(image).SerializeToString())
    started = time.process_time()
    for _ in take(parts, update):
        now = time.process_time()
        times.append((now - started) * 1_000)
        started = time.process_time()
    return [*times, (time.process_time() - started) * 1_000]
