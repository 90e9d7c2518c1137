"""Audit of one controller: the changes that it makes, and the decisions about requests of REST."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from tidemark.model.authorization import Operation, Requester, Resource
from tidemark.model.metadata import ClusterImage
from tidemark.protocol.acl_authorizer import Decision
from tidemark.protocol.audit import AuditTrail, Changes, Login
from tidemark.runtime.audit.config import LOG, TOPIC
from tidemark.runtime.audit.writer import AuditSink, AuditWriter, LogSink, Origin, TopicSink
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.clock import Clock
from tidemark.runtime.metrics import Metrics

from controller.config import ControllerConfig
from controller.shell.audit_mapping import CHANGES, was_answered
from controller.shell.wire_mapping import read_requester

FULL = "the audit log is full: what cannot be written down is refused (audit.when.full)"


class Audit:
    """Notes of one controller; without audit they are nothing."""

    def __init__(self, config: ControllerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self.trail: AuditTrail | None = config.audit_trail

    async def change(
        self, rpc: str, request: Any, context: Any, make: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Make the changes of a request by ``make``, and note them."""
        trail, changes = self.trail, CHANGES.get(rpc)
        if trail is None or changes is None:
            return await make()
        if not trail.may_go_on:
            await context.abort(grpc.StatusCode.UNAVAILABLE, FULL)
        response = await make()
        if was_answered(response):
            requester, now_ms = read_requester(request), self._clock.wall_ms()
            for kind, name, error in changes(request, response):
                trail.note(Changes(requester, rpc, kind, name, error), now_ms)
        return response

    def login(self, login: Login) -> bool:
        """Note a login to REST, the console or over gRPC; returns False if it must not happen."""
        return self.trail is None or self.trail.note(login, self._clock.wall_ms())

    def asked(
        self, requester: Requester, operation: Operation, resource: Resource, decision: Decision
    ) -> bool:
        """Note a decision of REST or the console; returns False if it must not happen."""
        if self.trail is None:
            return True
        now_ms = self._clock.wall_ms()
        return self.trail.decided(requester, operation, resource, decision, now_ms)

    def duties(
        self, image: Callable[[], ClusterImage | None], metrics: Metrics
    ) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return the work of writing down, by its name."""
        if self.trail is None:
            return {}
        config = self._config
        sinks: list[AuditSink] = []
        if LOG in config.audit_sinks:
            sinks.append(LogSink())
        channels = ChannelPool()
        if TOPIC in config.audit_sinks:
            sinks.append(TopicSink(image, channels, number=config.controller_id))
        origin = Origin(f"controller-{config.controller_id}", lambda: _cluster_id(image()))
        writer = AuditWriter(
            self.trail, sinks, origin, self._clock, interval_ms=config.audit_interval_ms
        )
        metrics.registry.register(writer)

        async def run() -> None:
            try:
                await writer.run()
            finally:
                await writer.finish()
                await channels.close()

        return {"audit": run}


def _cluster_id(image: ClusterImage | None) -> str:
    return "" if image is None else image.cluster_id
