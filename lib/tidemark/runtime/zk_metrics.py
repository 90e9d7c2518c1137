"""Metrics of a service's ZooKeeper session."""

from tidemark.runtime.metrics import Metrics
from tidemark.runtime.zk_session import SessionState, ZkSession


def measure_session(session: ZkSession, metrics: Metrics) -> None:
    """Register the metrics of a session."""
    ends = metrics.counter(
        "tidemark_zookeeper_session_ends",
        "ZooKeeper sessions that ended: expired, or closed by the service itself",
    ).at()
    metrics.computed_one(
        "tidemark_zookeeper_connected",
        lambda: float(session.state is SessionState.CONNECTED),
        "1 while the service has a connection and a session",
    )

    def note(state: SessionState) -> None:
        ends.value += state is SessionState.LOST

    session.add_listener(note)
