"""Coordinator of a group or transactional id, with retries of calls while it moves.

Any broker can name the coordinator. After NOT_COORDINATOR or a lost connection it is looked up
again; COORDINATOR_LOAD_IN_PROGRESS only delays the next attempt.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final, Protocol

from tidemark.client.config import Address, ClientConfig
from tidemark.client.deadline import Deadline
from tidemark.client.errors import ClientError, ConnectionLostError, RequestTimedOutError, error_for
from tidemark.client.wire.connection import BrokerConnection
from tidemark.client.wire.connection_pool import Lane
from tidemark.client.wire.kafka_transport import KafkaTransport
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.backoff import Backoff
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock

_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_KEYS_FROM: Final = 4
"""First version of FindCoordinator that takes several keys (KIP-699)."""

Fields = Mapping[str, object]
Problem = Callable[[Struct], ClientError | None]
"""Returns the error of a response, if any; ``ask_until`` retries while it is retriable."""


class CoordinatorKind(IntEnum):
    """Key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class KafkaSource(Protocol):
    """Source of a Kafka transport, such as a session."""

    async def kafka(self) -> KafkaTransport:
        """Return the transport. Raises ClientError."""
        ...


class Coordinator:
    """Coordinator of one key."""

    def __init__(
        self,
        source: KafkaSource,
        config: ClientConfig,
        clock: Clock,
        key: str,
        kind: CoordinatorKind = CoordinatorKind.GROUP,
    ) -> None:
        self.key = key
        self._source = source
        self._clock = clock
        self._kind = kind
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._address: Address | None = None
        self._finding = asyncio.Lock()

    @property
    def where(self) -> str:
        """Name of the coordinator in errors."""
        what = "transaction coordinator" if self._kind else "group coordinator"
        return f"{what} of {self.key!r} ({self._address or 'not known'})"

    def forget(self) -> None:
        """Look up the coordinator again before the next request."""
        self._address = None

    def note(self, problem: ClientError) -> None:
        """Forget the coordinator if the error shows that it may have moved."""
        lost = isinstance(problem, ConnectionLostError | RequestTimedOutError)
        if lost or problem.code in _MOVED:
            self.forget()

    async def ask(
        self, api_key: ApiKey, fields: Fields, *, version_max: int | None = None
    ) -> Struct:
        """Send one request without retries; error codes in the response are the caller's.

        Raises ClientError.
        """
        transport = await self._source.kafka()
        try:
            address = self._address or await self._find(transport)
            connection = await transport.connection_to(address, Lane.GROUP)
            return await transport.ask(connection, api_key, fields, version_max=version_max)
        except ClientError as problem:
            self.note(problem)
            raise

    async def ask_until(
        self,
        deadline: Deadline,
        api_key: ApiKey,
        fields: Callable[[], Fields],
        problem_of: Problem,
        *,
        version_max: int | None = None,
    ) -> Struct:
        """Send a request until its response has no retriable error, or until the deadline.

        Attempts are spread by back-off. Raises ClientError.
        """
        failures = 0
        while True:
            try:
                answer = await self.ask(api_key, fields(), version_max=version_max)
            except ClientError as failed:
                problem: ClientError | None = failed
            else:
                problem = problem_of(answer)
                if problem is None:
                    return answer
                self.note(problem)
            assert problem is not None, "neither answered nor failed"
            if not problem.retriable or deadline.passed(self._clock.now_ms()):
                raise problem
            failures += 1
            await self.back_off(failures)

    async def back_off(self, failures: int) -> None:
        """Wait before the next attempt, after ``failures`` failed attempts."""
        await asyncio.sleep(self._backoff.delay_ms(failures, random.random()) / 1_000)

    async def _find(self, transport: KafkaTransport) -> Address:
        async with self._finding:
            if self._address is None:
                self._address = await transport.ask_any(
                    lambda connection: self._find_at(transport, connection)
                )
            return self._address

    async def _find_at(self, transport: KafkaTransport, connection: BrokerConnection) -> Address:
        """Return one broker's answer. Raises CoordinatorNotAvailableError if there is none."""
        version = connection.version(ApiKey.FIND_COORDINATOR)
        fields: dict[str, object] = {"key_type": int(self._kind)}
        if version >= _KEYS_FROM:
            fields["coordinator_keys"] = [self.key]
        else:
            fields["key"] = self.key
        answer = await transport.ask(connection, ApiKey.FIND_COORDINATOR, fields)
        found = answer.coordinators[0] if version >= _KEYS_FROM and answer.coordinators else answer
        if found.error_code:
            raise error_for(
                found.error_code,
                f"finding the coordinator of {self.key!r} failed",
                where=str(connection.address),
                detail=found.error_message,
            )
        return Address(found.host, found.port)
