"""SharePartitions: the share-partitions of this broker, and the sessions of their members."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import Offset, TopicId
from tidemark.model.metadata_change import MetadataChange
from tidemark.model.share_group_configs import ShareGroupConfig
from tidemark.model.share_state import SharePartitionKey, TransactionKey
from tidemark.runtime.metadata_cache import MetadataCache

from broker.core.partition import Role
from broker.core.share.acknowledgement import AcknowledgementBatch, Answer
from broker.core.share.answers import NOT_READY
from broker.core.share.dead_letters import DeadLetters
from broker.core.share.loading import Loading
from broker.core.share.sessions import PartitionKey, SessionKey, ShareSession, ShareSessions
from broker.core.share.settings import ShareSettings
from broker.core.share.share_partition import SharePartition
from broker.core.share.states import Phase
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.parking_lot import ParkingLot
from broker.shell.partitions.table import PartitionTable
from broker.shell.share.answers import PendingAnswers
from broker.shell.share.batch_keys import BatchKeys
from broker.shell.share.held import HeldShare
from broker.shell.share.letter_copier import LetterCopier
from broker.shell.share.persister import Persister, settle
from broker.shell.share.start_offsets import StartOffsets
from broker.shell.share.state import ShareState
from broker.shell.share.turns import Turns

IDLE_SWEEP_S: Final = 30.0
"""Interval at which share-partitions are dropped that no session reads any longer."""
CONFIGS_MAX: Final = 10_000
"""Groups whose parsed configuration is kept."""
_NOTHING_SET: Final[Mapping[str, str]] = {}


class SharePartitions:
    """All share-partitions that were fetched from here, by group and partition. ``run`` is the
    parent of everything that waits.
    """

    def __init__(
        self,
        facts: BrokerFacts,
        *,
        metadata: MetadataCache,
        table: PartitionTable,
        parked: ParkingLot,
        starts: StartOffsets,
        state: ShareState,
        keys: BatchKeys,
        copier: LetterCopier,
        has_lease: Callable[[], bool],
    ) -> None:
        """``has_lease`` returns True while no other broker can lead what this one leads."""
        config = facts.config
        self.sessions = ShareSessions(
            sessions_max=config.group_share_max_share_sessions,
            partitions_max=config.group_share_max_share_session_partitions,
        )
        self.turns = Turns(facts.clock, parked.requests, copier.start)
        copier.on_changed = self.turns.touch
        copier.on_overtaken = self.drop
        self.copier = copier
        self.persister = Persister(
            state,
            starts,
            facts.clock,
            timeout_s=config.share_coordinator_write_timeout_ms / 1_000,
            on_changed=self.turns.wake,
            on_written=self.turns.write_ended,
            on_failed=self.drop,
        )
        self.turns.write_with(self.persister)
        keys.on_known = self.turns.wake
        self._keys = keys
        self._options = config.share_group_options()
        self._metadata = metadata
        self._table = table
        self._clock = facts.clock
        self._dice = facts.dice
        self._has_lease = has_lease
        self._groups: dict[str, dict[PartitionKey, HeldShare]] = {}
        self._configs: dict[str, tuple[Mapping[str, str], ShareGroupConfig]] = {}
        """Configuration in force by group, with what the group sets, as the metadata have it."""

    async def run(self) -> None:
        """Load, write and sweep until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.persister.run(), name="share-persister")
                tasks.create_task(self._keys.run(), name="share-keys")
                tasks.create_task(self.copier.run(), name="share-letters")
                await asyncio.sleep(0)
                self.turns.resume()
                while True:
                    await asyncio.sleep(IDLE_SWEEP_S)
                    self.drop_idle()
        finally:
            self.turns.stop()

    def __iter__(self) -> Iterator[HeldShare]:
        for of_group in tuple(self._groups.values()):  # a scrape of metrics may be in a thread
            yield from tuple(of_group.values())

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    # -- lookups

    def find(self, group_id: str, key: PartitionKey) -> HeldShare | ErrorCode:
        """Return a share-partition for a fetch; it is made at the first one. An error: the
        partition is not led here.
        """
        hosted = self.led(key)
        if isinstance(hosted, ErrorCode):
            return hosted
        held = self.get(group_id, key)
        if held is not None and (held.hosted is not hosted or not held.is_led):
            self.drop(held)
            held = None
        if held is not None and held.share.phase is Phase.ACTIVE:
            if hosted.partition.bounds.log_start > held.share.window.start:
                self._follow_log_start(held)
            return held
        now = self._clock.now_ms()
        if held is None or held.loading.is_void(held.share.phase, now):
            held = self._make(group_id, key, hosted)
        if held.loading.is_due(held.share.phase, now):
            held.is_wanted = True
            self.turns.touch(held)
        return held

    def get(self, group_id: str, key: PartitionKey) -> HeldShare | None:
        """Return a share-partition that exists."""
        of_group = self._groups.get(group_id)
        return None if of_group is None else of_group.get(key)

    def of_group(self, group_id: str) -> list[HeldShare]:
        """Return the share-partitions of a group."""
        return list(self._groups.get(group_id, {}).values())

    def led(self, key: PartitionKey) -> HostedPartition | ErrorCode:
        """Return a partition that this broker leads, or the error of a request for it."""
        hosted = self._table.find("", *key)
        if isinstance(hosted, ErrorCode):
            return hosted
        if hosted.partition.role is Role.LEADER:
            return hosted
        refused = hosted.partition.epoch_refused(-1)
        return hosted if refused is None else refused.error_code

    def may_deliver(self, held: HeldShare) -> bool:
        """Return True while no other leader can have delivered the records. A broker that stood
        still for long may be a former leader that does not know it: what members have acknowledged
        at the next one would come again.
        """
        commitment = held.hosted.partition.commitment
        return commitment.is_only_leader(has_lease=commitment.alone or self._has_lease())

    def _make(self, group_id: str, key: PartitionKey, hosted: HostedPartition) -> HeldShare:
        config = self.config_of(group_id)
        share = SharePartition(
            SharePartitionKey(group_id, *key),
            hosted.partition.leader_epoch,
            ShareSettings.of(config),
        )
        letters = DeadLetters(share, self._dice)
        held = HeldShare(share, hosted, config, Loading(self._dice), letters)
        self._groups.setdefault(group_id, {})[key] = held
        return held

    def config_of(self, group_id: str) -> ShareGroupConfig:
        """Return the configuration in force for a group."""
        configs = self._metadata.image.group_configs.get(group_id, _NOTHING_SET)
        known = self._configs.get(group_id)
        if known is None or known[0] is not configs:
            if len(self._configs) >= CONFIGS_MAX:
                self._configs.clear()
            known = self._configs[group_id] = (configs, self._options.of_group(configs))
        return known[1]

    def _follow_log_start(self, held: HeldShare) -> None:
        log_start = Offset(held.hosted.partition.bounds.log_start)
        held.share.log_start_moved(log_start, self._clock.now_ms())
        self.turns.touch(held)

    # -- requests

    def acknowledge(
        self,
        member: SessionKey,
        key: PartitionKey,
        batches: Sequence[AcknowledgementBatch],
        answers: PendingAnswers,
        *,
        transaction: TransactionKey | None = None,
    ) -> None:
        """Apply acknowledgements of a member, with or without a session. With a ``transaction``
        they take effect once it commits.
        """
        hosted = self.led(key)
        if isinstance(hosted, ErrorCode):
            answers.answers[key] = Answer(hosted)
            return
        held = self.get(member.group_id, key)
        if held is None or not held.is_led:
            answers.answers[key] = Answer(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the group has acquired nothing here"
            )
            return
        slot, now = answers.expect(key), self._clock.now_ms()
        answer = held.share.acknowledge(
            member.member_id, batches, slot, now, transaction=transaction
        )
        if answer is None:
            self.turns.gathering.acknowledged(member.group_id, answers, now)
        else:
            slot.settle(answer)
        self.turns.touch(held)

    def close(self, session: ShareSession) -> None:
        """Close a session, and give back what its member holds."""
        self.sessions.close(session)
        self._release(session)

    def connection_lost(self, connection: object) -> None:
        """Close the sessions of a connection."""
        for session in self.sessions.connection_lost(connection):
            self._release(session)

    def _release(self, session: ShareSession) -> None:
        """Give back what a member holds of any share-partition here: those that it has forgotten
        too.
        """
        now = self._clock.now_ms()
        for held in self.of_group(session.key.group_id):
            held.share.release(session.key.member_id, now)
            self.turns.touch(held)

    # -- what ends share-partitions

    def drop(self, held: HeldShare, answer: Answer = NOT_READY[Phase.FENCED]) -> None:
        """End a share-partition here. Requests that wait for it are answered; the next fetch loads
        it again.
        """
        settled = held.share.fence()
        held.is_dropped = True
        held.loading.ended(Phase.FENCED, answer, self._clock.now_ms())
        self._forget(held)
        settle(settled)
        self.turns.wake(held)

    def _forget(self, held: HeldShare) -> None:
        of_group = self._groups.get(held.group_id, {})
        key = held.partition_key
        if of_group.get(key) is held:
            del of_group[key]
            if not of_group:
                del self._groups[held.group_id]

    def drop_windows(self, group_id: str, keys: Iterable[tuple[TopicId, int]]) -> None:
        """Drop share-partitions whose state began again, or was deleted, at the
        share-coordinator.
        """
        for key in keys:
            held = self.get(group_id, key)
            if held is not None:
                self.drop(held)

    def load_windows(self, group_id: str, keys: Iterable[PartitionKey]) -> None:
        """Load share-partitions that are led here, as a fetch does."""
        for key in keys:
            self.find(group_id, key)

    def end_transaction(
        self,
        group_id: str,
        keys: Iterable[PartitionKey],
        transaction: TransactionKey,
        *,
        is_committed: bool,
    ) -> None:
        """Finish the records that a transaction holds, or give them back. A state that is being
        read may be that before the end: it is read again.
        """
        for key in keys:
            held = self.get(group_id, key)
            if held is None:
                continue
            if held.share.phase is not Phase.ACTIVE:
                self.drop(held)
                continue
            held.share.end_transaction(transaction, is_committed=is_committed)
            held.letters.ended(transaction, is_committed=is_committed)
            self.turns.touch(held)

    def drop_idle(self) -> None:
        """Drop share-partitions that no session reads, and that hold nothing that is not
        persisted.
        """
        self.turns.gathering.forget_idle(self._clock.now_ms(), self._groups)
        in_use = self.sessions.partitions_in_use()
        for held in tuple(self):
            if held.share.is_idle and (held.group_id, held.partition_key) not in in_use:
                held.is_dropped = True
                self._forget(held)
                self.turns.touch(held)

    def follow(self, change: MetadataChange) -> None:
        """Take over leadership and configuration from a new image."""
        for held in tuple(self):
            if not held.is_led or self._table.by_id.get(held.partition_key) is not held.hosted:
                self.drop(held)
        for group_id, of_group in tuple(self._groups.items()):
            if self._config_has_changed(change, group_id):
                config = self.config_of(group_id)
                for held in tuple(of_group.values()):
                    self._configure(held, config)

    @staticmethod
    def _config_has_changed(change: MetadataChange, group_id: str) -> bool:
        before = change.before.group_configs.get(group_id, _NOTHING_SET)
        return before != change.image.group_configs.get(group_id, _NOTHING_SET)

    def _configure(self, held: HeldShare, config: ShareGroupConfig) -> None:
        settings = ShareSettings.of(config)
        if settings.is_key_ordered != held.share.settings.is_key_ordered:
            self.drop(held)
            return
        held.configure(config)
        held.share.configure(settings)
        held.letters.retry()
        self.turns.touch(held)
