"""Throttling: the client quotas in force on this broker, with its clock, and counts of throttles.

A handler counts what a request used, writes the throttle time into its answer, and mutes the
connection for that time (KIP-219). Internal traffic does not pass here: followers' fetches, and the
topics of coordinators.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidemark.model.errors import ErrorCode
from tidemark.model.quotas import ClientQuotas
from tidemark.runtime.clock import Clock

from broker.core.client_quotas import Client, Quotas
from broker.shell.request_context import RequestContext

PRODUCE: Final = "produce"
FETCH: Final = "fetch"
REQUEST: Final = "request"
MUTATION: Final = "mutation"
CONNECTION: Final = "connection"
_MADE: Final = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Outcomes of changes of topics that are made, or may be."""
KINDS: Final = (PRODUCE, FETCH, REQUEST, MUTATION, CONNECTION)


@dataclass(slots=True)
class ThrottleCounters:
    """Throttles of one kind of quota."""

    count: int = 0
    total_ms: int = 0


class Throttling:
    """Quotas of clients on one broker."""

    def __init__(self, clock: Clock) -> None:
        self._now_ms, self._now_s = clock.now_ms, clock.precise_s
        self._quotas = Quotas()
        self.limits_produce = self.limits_fetch = self.limits_requests = False
        """False while no client has such a quota: hot paths look no further."""
        self.tells_producers = False
        """True if the answer to a produce request may have a throttle time."""
        self.handling_since_s = 0.0
        """Begin of the request that a handler works on, while requests are limited; 0: none."""
        self.counters: Mapping[str, ThrottleCounters] = {one: ThrottleCounters() for one in KINDS}

    def configure(self, quotas: ClientQuotas) -> None:
        """Take the quotas of the cluster."""
        self._quotas.configure(quotas)
        self.limits_produce = self._quotas.produce.enabled
        self.limits_fetch = self._quotas.fetch.enabled
        self.limits_requests = self._quotas.requests.enabled
        self.tells_producers = self.limits_produce or self.limits_requests

    def produced(self, principal: str, client_id: str | None, size_bytes: int) -> int:
        """Count a produce request. Return the throttle time in ms."""
        client = Client(principal, client_id or "")
        throttle_ms = self._quotas.produce.record(client, size_bytes, self._now_ms())
        return self._noted(PRODUCE, throttle_ms)

    def fetched(self, principal: str, client_id: str | None, size_bytes: int) -> int:
        """Count the records of a fetch. Return the throttle time in ms."""
        client = Client(principal, client_id or "")
        throttle_ms = self._quotas.fetch.record(client, size_bytes, self._now_ms())
        return self._noted(FETCH, throttle_ms)

    def fetch_bytes_max(self, principal: str, client_id: str | None, size_bytes: int) -> int:
        """Return the part of ``size_bytes`` that one fetch may return: no more than a window of the
        quota allows. A larger answer would throttle its client for longer than a window.
        """
        largest = self._quotas.fetch.largest(Client(principal, client_id or ""))
        return size_bytes if largest is None else min(size_bytes, max(1, int(largest)))

    def requested(self, principal: str, client_id: str | None, seconds: float) -> int:
        """Count the time that a request took on the event loop. Return the throttle time in ms."""
        client = Client(principal, client_id or "")
        return self._noted(REQUEST, self._quotas.requests.record(client, seconds, self._now_ms()))

    def request_ms(self, principal: str, client_id: str | None) -> int:
        """Return the throttle time in ms of an answer: for the time of the client's requests, with
        the one that a handler works on.
        """
        if not self.limits_requests:
            return 0
        since_s = self.handling_since_s
        so_far_s = self._now_s() - since_s if since_s else 0.0
        client = Client(principal, client_id or "")
        return self._quotas.requests.throttle_ms(client, so_far_s, self._now_ms())

    def mutations(self, context: RequestContext, *, strict_from: int) -> "Mutations":
        """Return the account of one request that changes topics. From version ``strict_from`` on
        the error THROTTLING_QUOTA_EXCEEDED is known.
        """
        return Mutations(self, context, strict=context.api_version >= strict_from)

    def mutation_ms(self, client: Client) -> int:
        """Return the time in ms for which mutations of a client are to wait."""
        mutations = self._quotas.mutations
        return mutations.throttle_ms(client, self._now_ms()) if mutations.enabled else 0

    def mutated(self, client: Client, permits: int) -> None:
        """Count partitions that a client creates or deletes."""
        if self._quotas.mutations.enabled:
            self._quotas.mutations.take(client, permits, self._now_ms())

    def mutations_throttled(self, client: Client) -> int:
        """Return the throttle time in ms of a request that changed topics, or was refused."""
        return self._noted(MUTATION, self.mutation_ms(client))

    def connected(self, address: str) -> int:
        """Count a new connection from an address. Return the time in ms after which it is to be
        closed, because there were too many; 0: it may stay.
        """
        connections = self._quotas.connections
        if not connections.enabled:
            return 0
        return self._noted(CONNECTION, connections.connected(address, self._now_ms()))

    def _noted(self, kind: str, throttle_ms: int) -> int:
        if throttle_ms:
            counters = self.counters[kind]
            counters.count += 1
            counters.total_ms += throttle_ms
        return throttle_ms


class Mutations:
    """Mutations of the controller in one request (KIP-599). With a debt, a client of a new version
    is refused further ones; another client is throttled afterwards.
    """

    def __init__(self, throttling: Throttling, context: RequestContext, *, strict: bool) -> None:
        self._throttling = throttling
        self._client = Client(context.requester.principal, context.client_id or "")
        self._strict = strict
        self._refused = False

    def refuses(self, permits: int) -> bool:
        """True if a change of so many partitions is refused; otherwise it is counted."""
        if self._strict and self._throttling.mutation_ms(self._client):
            self._refused = True
            return True
        self._throttling.mutated(self._client, permits)
        return False

    def settle(self, permits: int, outcome: ErrorCode) -> None:
        """Give back what was counted for a change that the controller has refused: a topic that
        exists already, or a number of partitions that is a typing error, costs nothing.
        """
        if outcome not in _MADE:
            self._throttling.mutated(self._client, -permits)

    def throttle_ms(self) -> int:
        """Return the throttle time of the answer in ms. Where there is the error, only a refusal
        has one: after a change that was accepted a client may ask for anything else.
        """
        if self._strict and not self._refused:
            return 0
        return self._throttling.mutations_throttled(self._client)
