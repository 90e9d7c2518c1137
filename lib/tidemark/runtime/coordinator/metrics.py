"""Metrics of every coordinator service, under the prefix of the service."""

from typing import Any

from tidemark.model.errors import ErrorCode
from tidemark.runtime.coordinator.shards import Shards
from tidemark.runtime.metrics import Metrics, TallyFamily, Timings


class RequestStats:
    """Counts of requests by RPC and error, and times of requests and loads."""

    def __init__(self, metrics: Metrics, prefix: str) -> None:
        self._requests: TallyFamily = metrics.counter(
            f"{prefix}_requests", "requests answered, by RPC and error", ("rpc", "error")
        )
        self._seconds = metrics.timings(
            f"{prefix}_request_seconds", "seconds from a request to its answer", ("rpc",)
        )
        self.load_seconds: Timings = metrics.timings(
            f"{prefix}_shard_load_seconds", "seconds from taking a shard over to serving it"
        ).at()

    def count(self, rpc: str, response: Any, seconds: float) -> None:
        """Count a response. Some have no error of the whole request."""
        code = ErrorCode(getattr(response, "error_code", 0))
        self._requests.at(rpc, code.name).value += 1
        self._seconds.at(rpc).observe(seconds)


def measure_shards(shards: Shards[Any], metrics: Metrics, prefix: str) -> None:
    """Register the metrics of the shards of a replica."""
    metrics.computed_one(
        f"{prefix}_shards_owned", lambda: len(shards.owned()), "shards that this replica owns"
    )
    metrics.computed_one(
        f"{prefix}_shards_serving",
        lambda: len(shards.serving()),
        "shards that this replica has loaded and serves",
    )
    shards.stats.loads = metrics.counter(
        f"{prefix}_shard_loads", "loads of shards that were started"
    ).at()
    shards.stats.failures = metrics.counter(
        f"{prefix}_shard_failures",
        "shards whose state was dropped: an append failed, or a later owner has written",
    ).at()
    metrics.computed_one(
        f"{prefix}_requests_waiting",
        lambda: sum(life.waiting_count for life in shards.serving().values()),
        "requests that shards have not answered yet",
    )
