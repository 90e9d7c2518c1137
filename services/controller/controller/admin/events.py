"""Events: what changed in the metadata lately, and a signal for pages that are live."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from pydantic import Field
from tidemark.model.ids import NO_BROKER
from tidemark.model.metadata import ClusterImage, PartitionImage, TopicImage
from tidemark.runtime.clock import Clock

from controller.admin.models import Model

KEPT_MAX: Final = 1_000
PER_CHANGE_MAX: Final = 200
"""Events of one change; the rest is counted by a last event."""
_LOOK_S: Final = 0.25
"""Time between two comparisons. What begins and ends within it is one change."""


class Event(Model):
    """One change. ``event_id`` increases; it belongs to this controller and its present run."""

    event_id: int = Field(examples=[17])
    at_ms: int = Field(description="ms since 1970", examples=[1_790_000_000_000])
    type: str = Field(
        description="topic-created, topic-deleted, partitions-added, config-changed,"
        " leader-changed, isr-changed, reassignment-started, reassignment-ended, broker-online,"
        " broker-fenced, broker-stopping, broker-registered, coordinator-online, coordinator-gone,"
        " controller-changed or more",
        examples=["leader-changed"],
    )
    subject: str = Field(examples=["orders-0"])
    message: str = Field(examples=["leader of orders-0: 1, was 2"])


Change = tuple[str, str, str]
"""Type, subject and message of an event."""


class EventLog:
    """Latest events of one controller, active or not: found by comparing images."""

    def __init__(self, image: Callable[[], ClusterImage], clock: Clock) -> None:
        self._image = image
        self._clock = clock
        self._events: deque[Event] = deque(maxlen=KEPT_MAX)
        self._next_id = 1
        self._changed = asyncio.Event()

    @property
    def last_id(self) -> int:
        """Id of the latest event; 0 before the first one."""
        return self._next_id - 1

    def after(self, event_id: int) -> list[Event]:
        """Return the events after an id that are kept, oldest first."""
        return [one for one in self._events if one.event_id > event_id]

    async def wait(self) -> None:
        """Wait for the next event."""
        await self._changed.wait()

    async def run(self) -> None:
        """Compare each image with the one before, until cancelled."""
        before = ClusterImage()
        while True:
            image = self._image()
            if image is not before and image.cluster_id:
                if before.cluster_id:
                    self.add(changes(before, image))
                before = image
            await asyncio.sleep(_LOOK_S)

    def add(self, found: Iterator[Change]) -> None:
        """Append events, at most PER_CHANGE_MAX of one change."""
        added = left_out = 0
        for kind, subject, message in found:
            if added >= PER_CHANGE_MAX:
                left_out += 1
                continue
            self._append(kind, subject, message)
            added += 1
        if left_out:
            self._append("more", "", f"{left_out} further changes at the same time")
        if added:
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    def _append(self, kind: str, subject: str, message: str) -> None:
        at_ms = self._clock.wall_ms()
        self._events.append(
            Event(event_id=self._next_id, at_ms=at_ms, type=kind, subject=subject, message=message)
        )
        self._next_id += 1


def changes(before: ClusterImage, after: ClusterImage) -> Iterator[Change]:
    """Yield what differs between two images. Pure; unchanged topics are compared by identity."""
    if before.controller_id != after.controller_id:
        words = f"controller {after.controller_id} is active, {before.controller_id} was"
        yield "controller-changed", f"controller {after.controller_id}", words
    if before.brokers is not after.brokers:
        yield from _brokers(before, after)
    if before.topics is not after.topics:
        yield from _topics(before, after)
    if before.coordinators is not after.coordinators:
        for kind, number in sorted(after.coordinators.keys() - before.coordinators.keys()):
            name = f"{kind}-coordinator {number}"
            yield "coordinator-online", name, f"{name} has joined"
        for kind, number in sorted(before.coordinators.keys() - after.coordinators.keys()):
            name = f"{kind}-coordinator {number}"
            yield "coordinator-gone", name, f"{name} has gone"
    for broker in sorted(after.broker_configs.keys() | before.broker_configs.keys()):
        if before.broker_configs.get(broker) != after.broker_configs.get(broker):
            name = f"broker {broker}" if broker else "all brokers"
            yield "config-changed", name, f"configuration of {name} has changed"


def _brokers(before: ClusterImage, after: ClusterImage) -> Iterator[Change]:
    for broker_id in sorted(after.brokers):
        name = f"broker {broker_id}"
        was, now = before.brokers.get(broker_id), after.brokers[broker_id]
        if was is None:
            yield "broker-registered", name, f"{name} has registered"
        elif was.fenced and not now.fenced:
            yield "broker-online", name, f"{name} is online"
        elif now.fenced and not was.fenced:
            yield "broker-fenced", name, f"{name} is fenced: its session or metadata stream ended"
        elif now.shutting_down and not was.shutting_down:
            yield "broker-stopping", name, f"{name} hands its partitions over, and stops"
    for broker_id in sorted(before.brokers.keys() - after.brokers.keys()):
        yield "broker-unregistered", f"broker {broker_id}", f"broker {broker_id} was unregistered"


def _topics(before: ClusterImage, after: ClusterImage) -> Iterator[Change]:
    for name in sorted(before.topics.keys() - after.topics.keys()):
        yield "topic-deleted", name, f"topic {name} was deleted"
    for name, topic in after.topics.items():
        was = before.topics.get(name)
        if was is topic:
            continue
        if was is None or was.topic_id != topic.topic_id:
            count = len(topic.partitions)
            yield "topic-created", name, f"topic {name} was created with {count} partitions"
        else:
            yield from _topic(was, topic)


def _topic(was: TopicImage, now: TopicImage) -> Iterator[Change]:
    if was.configs != now.configs:
        keys = sorted(
            key
            for key in {*was.configs, *now.configs}
            if was.configs.get(key) != now.configs.get(key)
        )
        yield "config-changed", now.name, f"configuration of {now.name}: {', '.join(keys)}"
    if len(now.partitions) > len(was.partitions):
        words = f"topic {now.name} has {len(now.partitions)} partitions, had {len(was.partitions)}"
        yield "partitions-added", now.name, words
    for old, new in zip(was.partitions, now.partitions, strict=False):
        if old is not new:
            yield from _partition(f"{now.name}-{new.partition}", old, new)


def _partition(name: str, old: PartitionImage, new: PartitionImage) -> Iterator[Change]:
    if old.leader != new.leader:
        leader = "none" if new.leader == NO_BROKER else str(new.leader)
        former = "none" if old.leader == NO_BROKER else str(old.leader)
        yield "leader-changed", name, f"leader of {name}: {leader}, was {former}"
    if set(old.isr) != set(new.isr):
        yield "isr-changed", name, f"ISR of {name}: {list(new.isr)}, was {list(old.isr)}"
    if new.is_reassigning and not old.is_reassigning:
        words = f"{name} moves: {list(new.adding)} added, {list(new.removing)} removed"
        yield "reassignment-started", name, words
    is_moved = old.is_reassigning or set(old.replicas) != set(new.replicas)
    if is_moved and not new.is_reassigning:  # a short move has begun and ended between two looks
        yield "reassignment-ended", name, f"{name} has the replicas {list(new.replicas)}"
