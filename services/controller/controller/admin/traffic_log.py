"""TrafficLog: reads the counters of the brokers at an interval, and makes rates of two answers.

A broker that does not answer has no rate, and a reason.
"""

import asyncio

from tidemark.client.admin.broker_load import TrafficCounters, describe_traffic
from tidemark.runtime.clock import Clock

from controller.admin.broker_calls import BrokerCalls
from controller.admin.errors import AdminError
from controller.admin.traffic_history import TrafficHistory


class TrafficLog:
    """Throughput of all brokers, for one controller, active or not."""

    def __init__(self, brokers: BrokerCalls, clock: Clock, *, interval_ms: int) -> None:
        self.interval_ms = interval_ms
        """0: nothing is measured."""
        self.history = TrafficHistory()
        self.problems: dict[int, str] = {}
        """Reason by broker, of the last round."""
        self._brokers = brokers
        self._clock = clock
        self._at_ms: int | None = None

    @property
    def age_ms(self) -> int | None:
        """Age of the last round; None before the first one."""
        return None if self._at_ms is None else self._clock.now_ms() - self._at_ms

    async def run(self) -> None:
        """Measure until cancelled."""
        while self.interval_ms:
            await self.measure()
            await asyncio.sleep(self.interval_ms / 1_000)

    async def measure(self) -> None:
        """Ask all live brokers, side by side."""
        answers: dict[int, TrafficCounters] = {}
        problems: dict[int, str] = {}

        async def ask(broker_id: int) -> None:
            try:
                answers[broker_id] = await self._brokers.ask_grpc(broker_id, describe_traffic)
            except AdminError as problem:
                problems[broker_id] = problem.message

        async with asyncio.TaskGroup() as tasks:
            for broker in self._brokers.live():
                tasks.create_task(ask(broker.broker_id))
        self.history.add(self._clock.wall_ms(), answers)
        self.problems = problems
        self._at_ms = self._clock.now_ms()
