"""ShareGroup: heartbeats of one member of a share group, in a task of its session."""

import asyncio
import base64
import logging
import random
import uuid
from typing import Final

from tidemark.client.config import ShareConsumerConfig
from tidemark.client.errors import ClientError, error_for
from tidemark.client.share.share_membership import (
    Fields,
    ShareHeartbeatAnswer,
    ShareMemberSettings,
    ShareMembership,
)
from tidemark.client.wire.coordinator import Coordinator
from tidemark.client.wire.session import Session
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.backoff import Backoff
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock

log: Final = logging.getLogger("tidemark.client.share.share_group")


class ShareGroup:
    """Membership of one consumer. ``changed`` wakes its poll."""

    def __init__(
        self,
        session: Session,
        config: ShareConsumerConfig,
        clock: Clock,
        changed: asyncio.Event,
        member_id: str,
    ) -> None:
        self.membership = ShareMembership(
            ShareMemberSettings(config.group_id, member_id, config.client_rack)
        )
        self._coordinator = Coordinator(session, config, clock, config.group_id)
        self._session = session
        self._config = config
        self._clock = clock
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._changed = changed
        self._woken = asyncio.Event()
        self._beating = False
        self._polled_at = 0

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Join the group, or change the subscription."""
        self._polled_at = self._clock.now_ms()
        self.membership.subscribe(topics, self._polled_at)
        self.start()

    def start(self) -> None:
        """Send heartbeats; requires a running session."""
        if self._session.is_running and self.membership.is_joined and not self._beating:
            self._beating = True
            if self._session.cache.want(self.membership.topics):
                self._session.cache.mark_stale()
            self._session.spawn(self._beat(), name="share-group")
        elif self._session.is_running and self._session.cache.want(self.membership.topics):
            self._session.cache.mark_stale()
        self._woken.set()

    def attend(self) -> None:
        """Note a ``poll``. Raises the error that prevents membership."""
        self._polled_at = self._clock.now_ms()
        was_joined = self.membership.is_joined
        self.membership.user_polls(self._polled_at)
        if self.membership.failure is not None:
            raise self.membership.failure.with_traceback(None)
        if self.membership.is_joined and not was_joined:
            self._woken.set()

    def assigned(self) -> dict[TopicPartition, bytes]:
        """Return topic ids of the assigned partitions whose names are known."""
        cache = self._session.cache
        names = {view.topic_id: view.topic for view in cache.cluster.topics.values()}
        found: dict[TopicPartition, bytes] = {}
        for topic_id, partition in sorted(self.membership.assigned):
            name = names.get(topic_id)
            if name is None:
                cache.mark_stale()
            else:
                found[TopicPartition(name, partition)] = topic_id
        return found

    async def leave(self) -> None:
        """Leave the group; tried once, otherwise the coordinator notices at the session's end."""
        await self._leave(self.membership.leaving())

    async def _beat(self) -> None:
        failures = 0
        while True:
            self._woken.clear()
            now = self._clock.now_ms()
            member = self.membership
            idle_until = self._polled_at + self._config.max_poll_interval_ms
            if member.is_joined and now >= idle_until:
                await self._leave(member.go_away())
                self._changed.set()
                continue
            due = member.due_at()
            if due is not None and due <= now:
                failures = await self._beat_once(failures)
                continue
            until = idle_until if due is None else min(due, idle_until)
            await self._sleep(until - now if member.is_joined else None)

    async def _beat_once(self, failures: int) -> int:
        """Send one heartbeat and return the number of failures in a row."""
        member = self.membership
        try:
            answer = await self._coordinator.ask(ApiKey.SHARE_GROUP_HEARTBEAT, member.heartbeat())
        except ClientError as problem:
            return self._on_no_answer(problem, failures)
        finally:
            self._changed.set()
        if member.passes(answer.error_code):
            what = f"a heartbeat to share group {self._coordinator.key!r} failed"
            refusal = error_for(answer.error_code, what, detail=answer.error_message)
            self._coordinator.note(refusal)
            return self._on_no_answer(refusal, failures)
        member.on_answer(_read(answer), self._clock.now_ms())
        return 0

    def _on_no_answer(self, problem: ClientError, failures: int) -> int:
        if not problem.retriable:
            self.membership.fail(problem)
            return 0
        delay_ms = self._backoff.delay_ms(failures + 1, random.random())
        self.membership.on_unanswered(self._clock.now_ms() + delay_ms)
        return failures + 1

    async def _sleep(self, allowed_ms: float | None) -> None:
        try:
            async with asyncio.timeout(None if allowed_ms is None else allowed_ms / 1_000):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _leave(self, fields: Fields | None) -> None:
        if fields is None:
            return
        try:
            await self._coordinator.ask(ApiKey.SHARE_GROUP_HEARTBEAT, fields)
        except ClientError as problem:
            log.info("leaving share group %s not acknowledged: %s", self._coordinator.key, problem)


def new_member_id() -> str:
    """Return a member id, which clients draw themselves."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def _read(answer: Struct) -> ShareHeartbeatAnswer:
    assigned = answer.assignment
    return ShareHeartbeatAnswer(
        answer.error_code,
        answer.member_epoch,
        answer.heartbeat_interval,
        None
        if assigned is None
        else frozenset(
            (topic.topic_id, partition)
            for topic in assigned.topic_partitions
            for partition in topic.partitions
        ),
        answer.error_message,
    )
