"""Cluster: metadata that is kept fresh, with one request at a time for all callers."""

import asyncio

from tidemark.client.config import ClientConfig
from tidemark.client.deadline import Deadline
from tidemark.client.errors import ClientError, error_for
from tidemark.client.wire.metadata_cache import MetadataCache, TopicView
from tidemark.client.wire.transport import Transport
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock


class Cluster:
    """Metadata of the cluster, and the only place that requests it."""

    def __init__(self, transport: Transport, config: ClientConfig, clock: Clock) -> None:
        self.cache = MetadataCache(
            age_ms_max=config.metadata_max_age_ms, unknown_grace_ms=config.unknown_topic_grace_ms
        )
        self.problem: ClientError | None = None
        """Failure of the last request; None if it was answered."""
        self._transport = transport
        self._config = config
        self._clock = clock
        self._asking = asyncio.Lock()
        self._asked_at: int | None = None

    async def refresh(self, *, seen_version: int, auto_create: bool = False) -> None:
        """Request metadata, unless a response has arrived since ``seen_version``.

        Requests are at least retry_backoff_ms apart, so that a cluster without leaders is not
        polled in a tight loop. Raises ClientError if no broker responds.
        """
        async with self._asking:
            if self.cache.version > seen_version:
                return
            if self._asked_at is not None:
                since_ms = self._clock.now_ms() - self._asked_at
                await asyncio.sleep(max(0, self._config.retry_backoff_ms - since_ms) / 1_000)
            self._asked_at = self._clock.now_ms()
            try:
                answer = await self._transport.describe(self.cache.wanted, auto_create=auto_create)
            except ClientError as problem:
                self.problem = problem
                raise
            self.problem = None
            self.cache.on_answer(answer, self._clock.now_ms())

    async def topic(
        self, topic: str, deadline: Deadline, *, auto_create: bool = False
    ) -> TopicView:
        """Return the topic, waiting until all its partitions are known.

        Raises ClientError at the deadline, or at once for errors that retries cannot fix.
        """
        if self.cache.want([topic]):
            self.cache.mark_stale()
        while True:
            view = self.cache.topic(topic)
            if view is not None and not self.cache.is_stale(self._clock.now_ms()):
                return view
            seen = self.cache.version
            try:
                await self.refresh(seen_version=seen, auto_create=auto_create)
            except ClientError as problem:
                if not problem.retriable or deadline.passed(self._clock.now_ms()):
                    raise
                continue
            view = self.cache.topic(topic)
            if view is not None and not self.cache.is_doubtful(topic):
                return view  # the cache may be stale for another topic, which was deleted
            code = self.cache.topic_error(topic)
            if code and self.gives_up(code, deadline):
                raise error_for(code, f"topic {topic!r} cannot be used")

    def gives_up(self, code: ErrorCode, deadline: Deadline) -> bool:
        """True if an error ends the retries.

        Unknown topics have a grace period; other retriable errors are retried until the deadline.
        """
        now = self._clock.now_ms()
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            waited_ms = deadline.allowed_ms - deadline.left_ms(now)
            return deadline.passed(now) or waited_ms >= self._config.unknown_topic_grace_ms
        return not code.retriable or deadline.passed(now)
