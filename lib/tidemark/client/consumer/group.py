"""A consumer's membership in its group: heartbeats, assigned partitions and commits.

Heartbeats run in a task of the session. Visible changes (assigned and revoked partitions, calls of
the listener, automatic commits) happen within ``poll``, so that nothing changes during a loop over
records.
"""

import asyncio
import base64
import logging
import uuid
from collections.abc import Awaitable, Iterable
from typing import Final

from tidemark.client.config import ConsumerConfig
from tidemark.client.consumer.fetcher import RESETS, Fetcher
from tidemark.client.consumer.group_types import (
    GroupMetadata,
    NoListener,
    OffsetAndMetadata,
    Offsets,
    RebalanceListener,
)
from tidemark.client.consumer.membership import (
    HeartbeatAnswer,
    MemberSettings,
    Membership,
    MemberState,
    Subscription,
    TopicIdPartition,
    read_assignment,
)
from tidemark.client.consumer.offset_storage import Check, OffsetStorage, storage_for
from tidemark.client.consumer.positions import PartitionState
from tidemark.client.deadline import Deadline
from tidemark.client.errors import ClientError, CommitFailedError
from tidemark.client.wire.coordinator import Coordinator
from tidemark.client.wire.heartbeats import Heartbeats
from tidemark.client.wire.session import Session
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.backoff import Backoff
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock

log: Final = logging.getLogger("tidemark.client.consumer.group")

Partitions = tuple[TopicPartition, ...]


class ConsumerGroup:
    """Group of one consumer with a group_id; the consumer is a member after ``subscribe``."""

    def __init__(
        self, session: Session, fetcher: Fetcher, config: ConsumerConfig, clock: Clock
    ) -> None:
        assert config.group_id is not None, "a group has a name"
        self.coordinator = Coordinator(session, config, clock, config.group_id)
        self._session = session
        self._fetcher = fetcher
        self._config = config
        self._clock = clock
        self._membership = Membership(
            MemberSettings(
                config.group_id,
                base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode(),
                config.group_instance_id,
                config.client_rack,
                config.max_poll_interval_ms,
                config.group_remote_assignor,
            )
        )
        self._heartbeats = Heartbeats(
            session,
            self.coordinator,
            clock,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            member=self._membership,
            on_answer=self._on_heartbeat,
            changed=fetcher.changed,
            backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
            max_poll_interval_ms=config.max_poll_interval_ms,
        )
        self._listener: RebalanceListener = NoListener()
        self._storage: OffsetStorage = storage_for(config, self.coordinator, self, clock)
        self._committing = asyncio.Lock()
        self._names: dict[bytes, str] = {}
        self._learning_names = False
        self._commit_at = 0.0
        self._auto_committing = False
        self._committed: dict[TopicPartition, int] = {}

    # -- membership

    @property
    def is_subscribed(self) -> bool:
        """True if partitions come from the group and not from ``assign``."""
        return self._membership.state is not MemberState.UNSUBSCRIBED

    @property
    def is_catching_up(self) -> bool:
        """True if the coordinator may have raised the member epoch without an answer so far."""
        return self._membership.is_catching_up

    @property
    def joins(self) -> int:
        """Number of times the consumer has joined; commits of an earlier membership are void."""
        return self._membership.joins

    def metadata(self) -> GroupMetadata:
        """Return member id and epoch, even of a fenced member; a simple consumer has neither."""
        settings = self._membership.settings
        if not self.is_subscribed:
            return GroupMetadata(settings.group_id)
        return GroupMetadata(
            settings.group_id,
            self._membership.member_epoch,
            settings.member_id,
            settings.group_instance_id,
        )

    def subscribe(self, subscription: Subscription, listener: RebalanceListener | None) -> None:
        """Join the group, or change the subscription."""
        self._listener = listener or NoListener()
        now = self._clock.now_ms()
        self._heartbeats.polled_at = now
        self._commit_at = now + self._config.auto_commit_interval_ms
        self._membership.subscribe(subscription, now)
        self.start()

    def start(self) -> None:
        """Send heartbeats; requires a running session."""
        if self._session.is_running and self.is_subscribed and not self._heartbeats.is_started:
            self._want(self._membership.subscription.topics)
            self._heartbeats.start("consumer-group")
        self._heartbeats.wake()

    async def unsubscribe(self) -> None:
        """Commit, give back all partitions and leave the group."""
        if not self.is_subscribed:
            return
        await self._give_back(commits=self._commits_by_itself)
        self._fetcher.states = {}

    async def close(self, *, commits: bool) -> None:
        """Leave the group, after a last commit if requested and configured."""
        try:
            if self.is_subscribed:
                await self._give_back(commits=commits and self._commits_by_itself)
            elif commits and self._commits_by_itself:
                await self._commit_last()
        finally:
            await self._storage.close()

    # -- within poll()

    def on_next_record(self) -> bool:
        """Note that an iteration takes its next record, which counts as a ``poll``. Return True if
        ``attend`` has work to do; cheap enough for every record.
        """
        now = self._clock.now_ms()
        self._heartbeats.polled_at = now
        if self._membership.wants_user:
            return True
        return self._commits_by_itself and now >= self._commit_at

    async def attend(self) -> None:
        """Do the group's work within ``poll``: assign and revoke partitions, commit when it is due.

        Raises the error that prevents membership.
        """
        now = self._clock.now_ms()
        self._heartbeats.polled_at = now
        stirs = self._membership.wants_user
        await self._report_loss()
        if self._membership.failure is not None:
            raise self._membership.failure.with_traceback(None)
        if self._commits_by_itself and now >= self._commit_at and not self._auto_committing:
            self._auto_commit(now)
        await self._revoke()
        if not self._membership.to_revoke:
            await self._assign()
        if stirs:
            self._heartbeats.wake()

    # -- offsets

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit offsets, or the positions of all partitions. Raises CommitFailedError."""
        wanted = self.positions() if offsets is None else offsets
        if not wanted:
            return
        deadline, joins = self._deadline(), self.joins
        check = self._check_of(wanted)
        async with self._committing:
            if self.joins != joins:
                raise CommitFailedError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"group {self.coordinator.key!r} was left or joined again before the commit",
                )
            await self._storage.commit(wanted, deadline, check)
        self._committed |= {partition: each.offset for partition, each in wanted.items()}

    def _check_of(self, wanted: Offsets) -> Check:
        """Return the check of a commit that begins now. The epoch of a member that has given up
        partitions stays valid, so a late attempt would set their next owner's offsets back.
        """
        states = self._fetcher.states if self.is_subscribed else {}
        owned = {each: states[each] for each in wanted if each in states}

        def check() -> None:
            for partition, state in owned.items():
                if self._fetcher.states.get(partition) is not state:
                    raise CommitFailedError(
                        ErrorCode.REBALANCE_IN_PROGRESS,
                        f"{partition} was given up before the commit of its offset",
                    )

        return check

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets, of any member."""
        return await self._storage.fetch(partitions, self._deadline())

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the position of ``poll`` in each partition."""
        return {
            state.partition: OffsetAndMetadata(state.position, leader_epoch=state.position_epoch)
            for state in self._fetcher.states.values()
            if state.position is not None
        }

    def begin(self, states: Iterable[PartitionState]) -> None:
        """Start partitions at their committed offsets; those without one by auto_offset_reset."""
        wanted = [state for state in states if state.waits_for_commit]
        if wanted and self._session.is_running:
            generations = [(state, state.generation) for state in wanted]
            self._session.spawn(self._begin(generations), name="consumer-committed")

    def _on_heartbeat(self, answer: Struct) -> None:
        assigned = answer.assignment
        self._membership.on_answer(
            HeartbeatAnswer(
                answer.error_code,
                answer.member_epoch,
                answer.heartbeat_interval,
                None if assigned is None else read_assignment(assigned.topic_partitions),
                answer.error_message,
            ),
            self._clock.now_ms(),
        )

    # -- assigned and revoked partitions

    async def _report_loss(self) -> None:
        lost = self._drop(self._membership.lost)
        if lost:
            await _await_listener(self._listener.on_lost(lost))
        self._membership.user_polls(self._clock.now_ms())

    async def _revoke(self) -> None:
        leaving = self._membership.to_revoke
        if not leaving:
            return
        if self._commits_by_itself:
            await self._commit_last()
        await _await_listener(self._listener.on_revoked(self._named(leaving)))
        self._drop(leaving)
        self._membership.revoked(leaving, self._clock.now_ms())

    async def _assign(self) -> None:
        coming = self._membership.to_assign
        known = frozenset(each for each in coming if self._name(each[0]) is not None)
        if known != coming:
            self._learn_names()
        if not known:
            return
        named = self._named(known)
        states = [PartitionState(partition, None) for partition in named]
        for state in states:
            state.waits_for_commit = True
            self._committed.pop(state.partition, None)
        self._fetcher.states |= {state.partition: state for state in states}
        # Acknowledged before the listener runs: free partitions need not wait for it.
        self._membership.assigned(known, self._clock.now_ms())
        self._want({partition.topic for partition in named})
        self.begin(states)
        await _await_listener(self._listener.on_assigned(named))

    def _want(self, topics: Iterable[str]) -> None:
        if self._session.cache.want(topics):
            self._session.cache.mark_stale()

    def _drop(self, partitions: frozenset[TopicIdPartition]) -> Partitions:
        named = self._named(partitions)
        for partition in named:
            self._fetcher.states.pop(partition, None)
        return named

    async def _give_back(self, *, commits: bool) -> None:
        """Commit, call the listener, and leave the group."""
        await self._report_loss()
        owned = self._membership.owned
        if owned and commits:
            await self._commit_last()
        if owned:
            await _await_listener(self._listener.on_revoked(self._named(owned)))
        self._drop(owned)
        await self._heartbeats.leave(self._membership.leaving())

    def _name(self, topic_id: bytes) -> str | None:
        known = self._names.get(topic_id)
        if known is None:
            for view in self._session.cache.cluster.topics.values():
                self._names[view.topic_id] = view.topic
            known = self._names.get(topic_id)
        return known

    def _named(self, partitions: frozenset[TopicIdPartition]) -> Partitions:
        return tuple(
            sorted(TopicPartition(self._names[topic_id], number) for topic_id, number in partitions)
        )

    def _learn_names(self) -> None:
        if not self._learning_names:
            self._learning_names = True
            self._session.spawn(self._ask_names(), name="consumer-topics")

    async def _ask_names(self) -> None:
        """Request all topics to find the names of topic ids; not every version can ask by id."""
        try:
            view = await self._session.transport.describe(None, auto_create=False)
            self._names |= {topic.topic_id: topic.topic for topic in view.topics.values()}
            if any(each[0] not in self._names for each in self._membership.to_assign):
                await self.coordinator.back_off(1)
        except ClientError as problem:
            log.info("topic request failed: %s", problem)
            await self.coordinator.back_off(1)
        finally:
            self._learning_names = False
            self._fetcher.changed.set()

    # -- committed positions

    @property
    def _commits_by_itself(self) -> bool:
        wanted = self._config.enable_auto_commit
        return self.is_subscribed if wanted is None else wanted

    def _auto_commit(self, now: int) -> None:
        """Commit in the background the records that ``poll`` returned before, if any."""
        self._commit_at = now + self._config.auto_commit_interval_ms
        moved = {
            partition: each
            for partition, each in self.positions().items()
            if self._committed.get(partition) != each.offset
        }
        if moved:
            self._auto_committing = True
            self._session.spawn(self._commit_beside(moved), name="consumer-auto-commit")

    async def _commit_beside(self, offsets: Offsets) -> None:
        try:
            await self.commit(offsets)
        except ClientError as problem:
            # The next interval retries; the heartbeat of a fenced member fails as well.
            log.warning("automatic commit of group %s failed: %s", self.coordinator.key, problem)
        finally:
            self._auto_committing = False

    async def _commit_last(self) -> None:
        """Commit before partitions are revoked; after a failure the next owner reads them again."""
        try:
            async with asyncio.timeout(self._config.request_timeout_ms / 1_000):
                await self.commit()
        except (ClientError, TimeoutError) as problem:
            log.warning("final commit of group %s failed: %s", self.coordinator.key, problem)

    async def _begin(self, wanted: list[tuple[PartitionState, int]]) -> None:
        failures = 0
        while True:
            left = [(state, number) for state, number in wanted if _waits(state, number)]
            left = [each for each in left if self._fetcher.states.get(each[0].partition) is each[0]]
            if not left:
                return
            try:
                found = await self.committed([state.partition for state, _ in left])
            except ClientError as problem:
                if not (problem.retriable or isinstance(problem, CommitFailedError)):
                    self._on_begin_failed(left, problem)
                    return
                failures += 1
                await self.coordinator.back_off(failures)
                continue
            reset = RESETS[self._config.auto_offset_reset]
            for state, number in left:
                if _waits(state, number):
                    known = found.get(state.partition)
                    if known is None:
                        state.begin_at(None, reset)
                    else:
                        state.begin_at(known.offset, reset, known.leader_epoch)
                    self._note_begin(state)
            self._fetcher.changed.set()
            return

    def _note_begin(self, state: PartitionState) -> None:
        if state.position is not None:
            self._committed[state.partition] = state.position

    def _on_begin_failed(
        self, left: list[tuple[PartitionState, int]], problem: ClientError
    ) -> None:
        for state, _ in left:
            state.error = problem
        self._fetcher.changed.set()

    def _deadline(self) -> Deadline:
        return Deadline.after(self._config.default_api_timeout_ms, self._clock.now_ms())


def _waits(state: PartitionState, generation: int) -> bool:
    return state.waits_for_commit and state.generation == generation


async def _await_listener(answer: Awaitable[None] | None) -> None:
    """Await the listener if it is asynchronous."""
    if answer is not None:
        await answer
