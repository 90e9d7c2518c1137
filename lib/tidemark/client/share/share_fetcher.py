"""ShareFetcher: requests of one share consumer to the brokers that lead its partitions.

Requests to one broker follow one another, because its share session counts them. They go over a
connection of their own: the broker ends the session with the connection.
"""

import asyncio
import logging
import random
from collections.abc import Collection, Mapping
from typing import Final

from tidemark.client.config import ACQUIRE_MODES, ShareConsumerConfig
from tidemark.client.deadline import Deadline
from tidemark.client.errors import ClientError, error_for
from tidemark.client.share.ack_batches import (
    UNREADABLE,
    UNSEEN,
    Decision,
)
from tidemark.client.share.acknowledge_callbacks import (
    AcknowledgeCallback,
    AcknowledgeResults,
    call_back,
)
from tidemark.client.share.acquired_records import read_acquired
from tidemark.client.share.deliveries import AGAIN, Deliveries, PartitionDeliveries, ShareRecord
from tidemark.client.share.ready_records import ReadyRecords
from tidemark.client.share.share_broker import ShareBroker, Taken, decisions_of, has_renewals
from tidemark.client.share.share_requests import (
    FetchedPartition,
    FetchSettings,
    Fields,
    ShareAnswer,
    acknowledge_fields,
    fetch_fields,
    read_acknowledged,
    read_fetched,
    with_renewals,
)
from tidemark.client.share.share_session import (
    SESSION_LOST,
    SharePartition,
    Verdict,
)
from tidemark.client.wire.connection_pool import Lane
from tidemark.client.wire.session import Session
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.own_fields import OWN_SHARE_FEATURE
from tidemark.model.backoff import Backoff
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock

log: Final = logging.getLogger("tidemark.client.share.share_fetcher")

LOCK_MS_MIN: Final = 1_000
"""Shortest lock that a broker grants, for an answer without its length."""

PAUSE_S: Final = 0.02
"""Shortest time between two requests that only acknowledge while records are buffered."""

Commit = list[tuple[ShareBroker, int, Taken]]
"""Acknowledgements of one commit, by broker and session."""


class ShareFetcher:
    """Fetches and acknowledgements, in tasks of a session. ``changed`` wakes waiting callers."""

    def __init__(
        self, session: Session, config: ShareConsumerConfig, clock: Clock, member_id: str
    ) -> None:
        self.deliveries = Deliveries()
        self.assigned: dict[TopicPartition, bytes] = {}
        """Topic ids of the assigned partitions."""
        self.changed = asyncio.Event()
        self.error: ClientError | None = None
        """Error for the next poll."""
        self.lock_timeout_ms: int | None = None
        self.on_acknowledged: AcknowledgeCallback | None = None
        self._session = session
        self._config = config
        self._clock = clock
        self._member_id = member_id
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._brokers: dict[int, ShareBroker] = {}
        self._ready = ReadyRecords()
        self._is_giving_back = False
        self._refreshing = False

    def assign(self, assigned: Mapping[TopicPartition, bytes]) -> None:
        """Fetch from these partitions from now on. Records of others may still be acknowledged."""
        self.assigned = dict(assigned)

    # -- records

    def take(self, records_max: int) -> list[ShareRecord]:
        """Hand out acquired records, at most ``records_max``. Those whose lock has ended since, by
        its time or with the connection, are dropped: they are delivered again, perhaps to another
        member.
        """
        self._drop_lost()
        return self._ready.take(records_max, self._clock.now_ms())

    def launch(self, records_max: int) -> float | None:
        """Start a fetch from every broker that leads an assigned partition; never waits.

        Returns the end of the earliest back-off, None without one.
        """
        now = self._clock.now_ms()
        cache = self._session.cache
        if cache.is_stale(now):
            self._refresh()
            if not cache.version:
                return None
        wanted: dict[int, list[tuple[TopicPartition, SharePartition]]] = {}
        for at, topic_id in self.assigned.items():
            leader = cache.leader(at)
            if leader is None or leader.topic_id != topic_id:
                self._refresh()
                continue
            share_partition = (topic_id, at.partition)
            wanted.setdefault(leader.broker_id, []).append((at, share_partition))
        for broker_id, partitions in wanted.items():
            broker = self._brokers.setdefault(broker_id, ShareBroker(broker_id))
            if not broker.fetching and broker.resume_at <= now:
                broker.fetching = True
                work = self._fetch(broker, dict(partitions), records_max)
                self._session.spawn(work, name=f"share-fetch-{broker_id}")
        self._acknowledge_elsewhere(wanted.keys())
        instants = [one.resume_at for one in self._brokers.values() if one.resume_at > now]
        return min(instants, default=None)

    def has_ready(self) -> bool:
        """True if acquired records are in memory, so that a poll starts no fetch."""
        self._drop_lost()
        return not self._ready.is_empty

    def _drop_lost(self) -> None:
        for broker in self._brokers.values():
            if broker.connection is not None and broker.connection.is_lost:
                self._ready.drop(broker.acquired.values())

    def acknowledge(self) -> bool:
        """Send what is decided though no fetch is started. Returns True while a request is under
        way.
        """
        for broker in self._brokers.values():
            self._start_acknowledging(broker)
        return any(broker.acknowledging for broker in self._brokers.values())

    def _acknowledge_elsewhere(self, fetched_from: Collection[int]) -> None:
        """Send what is decided to brokers from which nothing is fetched: partitions that this
        member has no longer. No fetch takes it along.
        """
        for broker_id, broker in self._brokers.items():
            if broker_id not in fetched_from:
                self._start_acknowledging(broker)

    def _start_acknowledging(self, broker: ShareBroker) -> None:
        broker.gather()
        if broker.outbox and not broker.acknowledging:
            broker.acknowledging = True
            work = self._send_outbox(broker)
            self._session.spawn(work, name=f"share-acknowledge-{broker.broker_id}")

    async def _send_outbox(self, broker: ShareBroker) -> None:
        """Send what polls have released until nothing is left; one request takes what came during
        the pause.
        """
        allowed_ms = self._config.default_api_timeout_ms
        try:
            while broker.outbox and not broker.fetch_takes_outbox:
                deadline = Deadline.after(allowed_ms, self._clock.now_ms())
                taken = broker.take_outbox()
                await self._commit_at(broker, broker.lost_count, taken, deadline)
                self.changed.set()
                await asyncio.sleep(PAUSE_S)
        finally:
            broker.acknowledging = False

    async def _fetch(
        self,
        broker: ShareBroker,
        wanted: Mapping[TopicPartition, SharePartition],
        records_max: int,
    ) -> None:
        try:
            async with broker.turn:
                taken = broker.take()
                if has_renewals(taken):
                    self._report(await self._send_acknowledge(broker, taken))
                    taken = {}
                await self._fetch_once(broker, wanted, records_max, taken)
        finally:
            broker.fetching = False
            self.changed.set()

    async def _fetch_once(
        self,
        broker: ShareBroker,
        wanted: Mapping[TopicPartition, SharePartition],
        records_max: int,
        taken: Taken,
    ) -> None:
        config = self._config
        request = broker.session.fetch(wanted.values(), decisions_of(taken))
        settings = FetchSettings(
            config.fetch_max_wait_ms,
            config.fetch_min_bytes,
            config.fetch_max_bytes,
            records_max,
            ACQUIRE_MODES[config.share_acquire_mode],
        )
        fields = fetch_fields(config.group_id, self._member_id, request, settings)
        results, answer = await self._exchange(broker, ApiKey.SHARE_FETCH, fields, taken)
        self._report(results)
        if answer is None:
            return
        names = {share_partition: at for at, share_partition in wanted.items()}
        problems = [
            self._on_fetched(broker, names[one], one[0], fetched)
            for one, fetched in answer.partitions.items()
            if one in names
        ]
        if any(problems):
            self._fail(broker)
        else:
            broker.failures = 0

    def _on_fetched(
        self, broker: ShareBroker, at: TopicPartition, topic_id: bytes, fetched: FetchedPartition
    ) -> bool:
        """Keep the records of one partition; return True if it is to be fetched again later."""
        if fetched.error_code:
            self._session.cache.mark_stale()
            what = f"fetching {at} for share group {self._config.group_id!r} failed"
            where = self._session.transport.where(broker.broker_id)
            problem = error_for(fetched.error_code, what, where=where, detail=fetched.error_message)
            if not problem.retriable and problem.code is not ErrorCode.UNKNOWN_SERVER_ERROR:
                self.error = problem
            return True
        if not fetched.acquired:
            return False
        deliveries = broker.acquired.get(at)
        if deliveries is None or deliveries.topic_id != topic_id:
            leader = self._session.cache.leader(at)
            if leader is not None and leader.broker_id != broker.broker_id:
                return True  # a late answer of an earlier leader, whose locks have ended
            deliveries = self._begin(broker, at, topic_id)
        read = read_acquired(
            at, fetched.records, fetched.acquired, check_crcs=self._config.check_crcs
        )
        deliveries.skip(read.gaps)
        deliveries.skip(read.unread, UNREADABLE)
        if read.records:
            lock_ms = self.lock_timeout_ms or LOCK_MS_MIN
            self._ready.add(deliveries, read.records, self._clock.now_ms(), lock_ms)
            self._watch_ready()
        self.error = read.error or self.error
        return False

    def _begin(
        self, broker: ShareBroker, at: TopicPartition, topic_id: bytes
    ) -> PartitionDeliveries:
        """Begin deliveries from a broker. The locks of an earlier leader have ended."""
        for other in self._brokers.values():
            before, was_decided = other.drop(at)
            if before is None:
                continue
            self._ready.drop([before])
            if was_decided:
                what = f"another broker leads {at} now"
                self._report({at: error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, what)})
            before.lose()
        connection = broker.connection
        begun = self.deliveries.begin(
            at,
            topic_id,
            takes_own_fields=connection is not None and connection.has_feature(OWN_SHARE_FEATURE),
        )
        broker.acquired[at] = begun
        return begun

    def _watch_ready(self) -> None:
        if not self._is_giving_back and self._ready.next_return() is not None:
            self._is_giving_back = True
            self._session.spawn(self._give_back_in_time(), name="share-give-back")

    async def _give_back_in_time(self) -> None:
        """Release records that the application does not receive in time, while there are any. They
        would count as delivered once their locks end.
        """
        try:
            while (due := self._ready.next_return()) is not None:
                now = self._clock.now_ms()
                if due > now:
                    await asyncio.sleep((due - now) / 1_000)
                    continue
                for deliveries, offsets in self._ready.take_back(now):
                    deliveries.skip(offsets, UNSEEN)
                allowed_ms = self._config.default_api_timeout_ms
                await self.commit(self.begin_commit(), Deadline.after(allowed_ms, now))
        finally:
            self._is_giving_back = False

    # -- acknowledgements

    def begin_commit(self) -> Commit:
        """Take all acknowledgements that are decided, for ``commit`` to send."""
        return [
            (broker, broker.lost_count, taken)
            for broker in self._brokers.values()
            if (taken := broker.take())
        ]

    async def commit(
        self, begun: Commit, deadline: Deadline
    ) -> dict[TopicPartition, ClientError | None]:
        """Send acknowledgements; return the outcome of each partition."""
        results: dict[TopicPartition, ClientError | None] = {}

        async def commit(broker: ShareBroker, lost_count: int, taken: Taken) -> None:
            outcomes = await self._commit_at(broker, lost_count, taken, deadline)
            for at, error in outcomes.items():
                results[at] = results.get(at) or error

        async with asyncio.TaskGroup() as tasks:
            for of_broker in begun:
                tasks.create_task(commit(*of_broker))
        return results

    async def _commit_at(
        self, broker: ShareBroker, lost_count: int, taken: Taken, deadline: Deadline
    ) -> dict[TopicPartition, ClientError | None]:
        """Send until nothing is to be sent again, or until the deadline."""
        results: dict[TopicPartition, ClientError | None] = {}
        failures = 0
        while taken:
            async with broker.turn:
                if broker.lost_count != lost_count:
                    what = f"the session with {self._session.transport.where(broker.broker_id)}"
                    lost = error_for(ErrorCode.SHARE_SESSION_NOT_FOUND, f"{what} was lost")
                    results.update(dict.fromkeys(taken, lost))
                    break
                sent = await self._send_acknowledge(broker, taken)
            results.update(sent)
            again = [error for error in sent.values() if error is not None and error.code in AGAIN]
            if not again or deadline.passed(self._clock.now_ms()):
                break
            failures += 1
            await asyncio.sleep(self._backoff.delay_ms(failures, random.random()) / 1_000)
            taken = broker.take()
        self._report(results)
        return results

    async def _send_acknowledge(
        self, broker: ShareBroker, taken: Taken
    ) -> dict[TopicPartition, ClientError | None]:
        request = broker.session.acknowledge(decisions_of(taken))
        fields = acknowledge_fields(self._config.group_id, self._member_id, request)
        if has_renewals(taken):
            fields = with_renewals(fields)
        results, _ = await self._exchange(broker, ApiKey.SHARE_ACKNOWLEDGE, fields, taken)
        return results

    async def close(self, deadline: Deadline) -> None:
        """End every session: send what is decided, and let the brokers release the rest."""
        async with asyncio.TaskGroup() as tasks:
            for broker in self._brokers.values():
                if broker.session.is_open:
                    tasks.create_task(self._close_at(broker, deadline))

    async def _close_at(self, broker: ShareBroker, deadline: Deadline) -> None:
        for one in broker.acquired.values():
            one.drop_renewals()
        await self._commit_at(broker, broker.lost_count, broker.take(), deadline)
        async with broker.turn:
            if not broker.session.is_open:
                return
            unseen = self._unseen_of(broker)
            fields = acknowledge_fields(
                self._config.group_id, self._member_id, broker.session.close(unseen)
            )
            try:
                await self._ask(broker, ApiKey.SHARE_ACKNOWLEDGE, fields)
            except ClientError as problem:
                log.info("share session not ended in order: %s", problem)
            self._lose(broker)

    def _unseen_of(self, broker: ShareBroker) -> dict[SharePartition, dict[int, Decision]]:
        """Return releases of the records that the application never received."""
        partitions = {id(one): at.partition for at, one in broker.acquired.items()}
        unseen: dict[SharePartition, dict[int, Decision]] = {}
        for deliveries, offsets in self._ready.unseen_of(
            broker.acquired.values(), self._clock.now_ms()
        ):
            key = (deliveries.topic_id, partitions[id(deliveries)])
            unseen.setdefault(key, {}).update(dict.fromkeys(offsets, UNSEEN))
        return unseen

    # -- one request

    async def _exchange(
        self, broker: ShareBroker, api_key: ApiKey, fields: Fields, taken: Taken
    ) -> tuple[dict[TopicPartition, ClientError | None], ShareAnswer | None]:
        """Send one request of the session; return the outcome of its acknowledgements, and the
        answer unless the session was lost.
        """
        try:
            answer = await self._ask(broker, api_key, fields)
        except ClientError as problem:
            self._session.cache.mark_stale()
            broker.session.on_lost()
            return self._on_lost(broker, taken, problem), None
        except BaseException:
            self._lose(broker)
            raise
        if broker.session.on_answer(answer.error_code) is Verdict.LOST:
            what = f"a request of share group {self._config.group_id!r} was refused"
            where = self._session.transport.where(broker.broker_id)
            refused = error_for(answer.error_code, what, where=where, detail=answer.error_message)
            return self._on_lost(broker, taken, refused), None
        self.lock_timeout_ms = answer.lock_timeout_ms or self.lock_timeout_ms
        return self._settle(taken, answer), answer

    async def _ask(self, broker: ShareBroker, api_key: ApiKey, fields: Fields) -> ShareAnswer:
        transport = await self._session.kafka()
        connection = await transport.connection(broker.broker_id, Lane.SHARE)
        broker.connection = connection
        wait_ms = self._config.request_timeout_ms + self._config.fetch_max_wait_ms
        answer = await transport.ask(connection, api_key, fields, timeout_ms=wait_ms)
        return read_fetched(answer) if api_key is ApiKey.SHARE_FETCH else read_acknowledged(answer)

    def _settle(
        self, taken: Taken, answer: ShareAnswer
    ) -> dict[TopicPartition, ClientError | None]:
        results: dict[TopicPartition, ClientError | None] = {}
        missing = FetchedPartition(acknowledge_error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR))
        for at, (deliveries, decisions) in taken.items():
            outcome = answer.partitions.get((deliveries.topic_id, at.partition), missing)
            code = outcome.acknowledge_error_code
            deliveries.settle(decisions, code)
            results[at] = None
            if code:
                what = f"acknowledging records of {at} failed"
                results[at] = error_for(code, what, detail=outcome.acknowledge_error_message)
        return results

    def _on_lost(
        self, broker: ShareBroker, taken: Taken, problem: ClientError
    ) -> dict[TopicPartition, ClientError | None]:
        """Forget what was acquired in a session that is lost; return the outcomes."""
        affected = broker.affected()
        self._lose(broker)
        self._fail(broker)
        if not problem.retriable and problem.code not in SESSION_LOST:
            self.error = problem
        return dict.fromkeys((*taken, *affected), problem)

    def _lose(self, broker: ShareBroker) -> None:
        self._ready.drop(broker.acquired.values())
        broker.lose()

    def _fail(self, broker: ShareBroker) -> None:
        broker.failures += 1
        delay_ms = self._backoff.delay_ms(broker.failures, random.random())
        broker.resume_at = self._clock.now_ms() + delay_ms

    def _report(self, results: AcknowledgeResults) -> None:
        if results and self.on_acknowledged is not None:
            call_back(self.on_acknowledged, results)

    def _refresh(self) -> None:
        if not self._refreshing:
            self._refreshing = True
            self._session.spawn(self._ask_leaders(), name="share-metadata")

    async def _ask_leaders(self) -> None:
        cluster = self._session.cluster
        try:
            await cluster.refresh(seen_version=cluster.cache.version)
        except ClientError as problem:
            log.info("metadata request failed: %s", problem)
        finally:
            self._refreshing = False
            self.changed.set()
