"""ShareGroup: heartbeats of one member of a share group, in a task of its session."""

import asyncio
import base64
import uuid

from tidemark.client.config import ShareConsumerConfig
from tidemark.client.share.share_membership import (
    ShareHeartbeatAnswer,
    ShareMemberSettings,
    ShareMembership,
)
from tidemark.client.wire.coordinator import Coordinator
from tidemark.client.wire.heartbeats import Heartbeats
from tidemark.client.wire.session import Session
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.backoff import Backoff
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock


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
        self._session = session
        self._clock = clock
        self._heartbeats = Heartbeats(
            session,
            Coordinator(session, config, clock, config.group_id),
            clock,
            ApiKey.SHARE_GROUP_HEARTBEAT,
            member=self.membership,
            on_answer=self._on_heartbeat,
            changed=changed,
            backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
            max_poll_interval_ms=config.max_poll_interval_ms,
        )

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Join the group, or change the subscription."""
        now = self._clock.now_ms()
        self._heartbeats.polled_at = now
        self.membership.subscribe(topics, now)
        self.start()

    def start(self) -> None:
        """Send heartbeats; requires a running session."""
        if self._session.is_running and self.membership.is_joined:
            if self._session.cache.want(self.membership.topics):
                self._session.cache.mark_stale()
            if not self._heartbeats.is_started:
                self._heartbeats.start("share-group")
        self._heartbeats.wake()

    def attend(self) -> None:
        """Note a ``poll``. Raises the error that prevents membership."""
        now = self._clock.now_ms()
        self._heartbeats.polled_at = now
        was_joined = self.membership.is_joined
        self.membership.user_polls(now)
        if self.membership.failure is not None:
            raise self.membership.failure.with_traceback(None)
        if self.membership.is_joined and not was_joined:
            self._heartbeats.wake()

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
        await self._heartbeats.leave(self.membership.leaving())

    def _on_heartbeat(self, answer: Struct) -> None:
        self.membership.on_answer(_read(answer), self._clock.now_ms())


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
