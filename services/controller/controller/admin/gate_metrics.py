"""Measurements of the gates of rolls."""

from tidemark.runtime.metrics import Metrics


class GateMetrics:
    """Measurements of the question if a broker may restart, which the gates of rolls ask: the
    preStop hook of the Helm chart, and ``tidemark k8s roll``.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.deferrals = metrics.counter(
            "tidemark_controller_restart_deferrals",
            "answers to gates of rolls that a broker may not restart yet, by kind of risk",
            ("risk",),
        )
