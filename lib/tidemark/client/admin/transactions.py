"""Transactions in the admin client."""

from collections.abc import Iterable

from tidemark.client.admin import group_answers as answers
from tidemark.client.admin import requests as admin_requests
from tidemark.client.admin.calls import AdminCalls
from tidemark.client.admin.group_types import (
    OPEN_STATES,
    TransactionDescription,
    TransactionListing,
)
from tidemark.client.admin.requests import Fields
from tidemark.client.admin.types import ProducerState
from tidemark.client.errors import ClientError, InvalidTransactionStateError, error_for
from tidemark.client.wire.coordinator import CoordinatorKind
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

_FENCING_TIMEOUT_MS = 60_000


class TransactionAdmin(AdminCalls):
    """Methods of Admin for transactions, including hanging ones."""

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms_min: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Return transactional ids, sorted by name.

        Filters: states, producer ids, a minimum duration (of open transactions, unless states are
        given), and a regular expression for the name.
        """
        if duration_ms_min >= 0:
            states = list(states) or sorted(OPEN_STATES)
        fields = {
            "state_filters": list(states),
            "producer_id_filters": list(producer_ids),
            "duration_filter": duration_ms_min,
            "transactional_id_pattern": pattern,
        }
        listed: dict[str, TransactionListing] = {}
        for broker_id, answer in (await self._ask_every(ApiKey.LIST_TRANSACTIONS, fields)).items():
            if answer.error_code:
                where = self._transport().where(broker_id)
                raise error_for(answer.error_code, "listing transactions failed", where=where)
            if answer.unknown_state_filters:
                raise ValueError(f"no such states: {', '.join(answer.unknown_state_filters)}")
            for each in answer.transaction_states:
                listed[each.transactional_id] = TransactionListing(
                    each.transactional_id, each.producer_id, each.transaction_state
                )
        return [listed[name] for name in sorted(listed)]

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """Return the coordinators' state of transactional ids.

        Raises TransactionalIdNotFoundError.
        """
        found: dict[str, TransactionDescription] = {}
        for name in transactional_ids:
            doing = f"describing transactional id {name!r}"

            def problem_of(answer: Struct, doing: str = doing) -> ClientError | None:
                return answers.problem(answer.transaction_states[0].error_code, doing)

            answer = await self._ask_coordinator(
                name,
                ApiKey.DESCRIBE_TRANSACTIONS,
                {"transactional_ids": [name]},
                problem_of,
                kind=CoordinatorKind.TRANSACTION,
            )
            found[name] = answers.transaction(answer.transaction_states[0])
        return found

    async def fence_producers(self, transactional_ids: Iterable[str]) -> None:
        """Fence the producers of these ids and abort their open transactions."""
        for name in transactional_ids:
            doing = f"fencing transactional id {name!r}"

            def problem_of(answer: Struct, doing: str = doing) -> ClientError | None:
                return answers.problem(answer.error_code, doing)

            fields = {
                "transactional_id": name,
                "transaction_timeout": _FENCING_TIMEOUT_MS,
                "producer_id": -1,
                "producer_epoch": -1,
            }
            await self._ask_coordinator(
                name,
                ApiKey.INIT_PRODUCER_ID,
                fields,
                problem_of,
                kind=CoordinatorKind.TRANSACTION,
            )

    async def abort_transaction(self, partition: TopicPartition, producer: ProducerState) -> None:
        """Write an abort marker for a hanging transaction, at the partition's leader.

        ``producer`` comes from ``describe_producers``. Use it for transactions only that no
        coordinator will end: the last stable offset then passes records whose transaction may have
        committed elsewhere.
        """
        if producer.current_txn_start_offset < 0:
            raise InvalidTransactionStateError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer.producer_id} has no open transaction in {partition}",
            )
        partition = TopicPartition(*partition)
        marker: Fields = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "transaction_result": False,
            "topics": [
                {"name": partition.topic, "partition_indexes": [partition.partition]},
            ],
            "coordinator_epoch": max(producer.coordinator_epoch, 0),
        }
        await self._session.cluster.topic(partition.topic, self._deadline())
        leader = self._session.cache.leader(partition)
        if leader is None:
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
        answer = await self._ask(leader.broker_id, ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]})
        for one in answer.markers:
            for topic in one.topics:
                for each in topic.partitions:
                    if each.error_code:
                        what = f"aborting the transaction in {partition} failed"
                        raise error_for(each.error_code, what)

    async def describe_producers(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, list[ProducerState]]:
        """Return the state of idempotent producers at each partition's leader."""
        found = await self._at_leaders(
            [TopicPartition(*each) for each in partitions],
            ApiKey.DESCRIBE_PRODUCERS,
            admin_requests.describe_producers,
        )
        return {part: admin_requests.read_producers(each) for part, each in found.items()}

    async def open_transactions(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerState]]:
        """Return producers with an open transaction in a partition, in the order of first offsets.

        Partitions without one are left out.
        """
        found: dict[TopicPartition, list[ProducerState]] = {}
        for partition, producers in (await self.describe_producers(partitions)).items():
            open_now = [each for each in producers if each.current_txn_start_offset >= 0]
            if open_now:
                found[partition] = sorted(open_now, key=lambda p: p.current_txn_start_offset)
        return found
