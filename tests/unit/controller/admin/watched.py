"""The watch over lost nodes of one controller, on an API server in memory."""

import asyncio
import re

from controller.admin.lost_nodes import Limits, LostNodes
from prometheus_client import generate_latest
from tidemark.kubernetes.cluster import ReleaseOnKubernetes
from tidemark.plans.kubernetes.release import ClusterCheck
from tidemark.runtime.metrics import Metrics
from unit.tidemark.kubernetes.memory_api import MemoryApi
from virtual_time import LoopClock, pass_time

WAIT_MS = 60_000
FENCED = ClusterCheck(brokers_fenced=(0,))
WHOLE = ClusterCheck()


class Watched:
    """A watch over a release whose broker 0 is dead until its pod has been made again."""

    def __init__(self, api: MemoryApi, *, look_age_ms: int = 9_000) -> None:
        self.active = asyncio.Event()
        self.active.set()
        self.answer: ClusterCheck | None = None
        self._api = api
        self._metrics = Metrics("controller")
        self.watch = LostNodes(
            ReleaseOnKubernetes(api, "log", "demo"),
            self.active,
            self._check,
            clock=LoopClock(),
            metrics=self._metrics,
            limits=Limits(WAIT_MS, look_age_ms),
        )

    async def run(self, *, until_s: float) -> None:
        """Let this time pass."""
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.watch.run())
            await pass_time(until_s)
            task.cancel()

    def _check(self, _: int) -> ClusterCheck:
        if self.answer is not None:
            return self.answer
        return WHOLE if self._api.pods["demo-broker-0"]["spec"].get("nodeName") else FENCED

    def shown(self, name: str) -> dict[str, float]:
        """Samples of a metric, by the values of their only label."""
        text = generate_latest(self._metrics.registry).decode()
        found = re.findall(rf'^{name}(?:{{\w+="(\w+)"}})? (\S+)$', text, re.MULTILINE)
        return {label: float(number) for label, number in found}

    @property
    def steps(self) -> dict[str, float]:
        """Steps by their kinds."""
        return self.shown("tidemark_controller_node_replacement_steps_total")

    @property
    def refusals(self) -> dict[str, float]:
        """Refusals by their reasons."""
        return self.shown("tidemark_controller_node_replacement_refusals_total")

    @property
    def failures(self) -> float:
        """Requests that Kubernetes refused."""
        return self.shown("tidemark_controller_node_replacement_failures_total")[""]

    def events(self) -> list[str]:
        """Reasons of the Events, in their order."""
        lines = [line for line in self._api.done if line.startswith("POST /events")]
        return [re.findall(r"'reason': '(\w+)'", line)[0] for line in lines]
