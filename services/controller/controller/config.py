"""What a controller can be told. The keys are Kafka's where Kafka has one."""

from typing import Final, Self

from pydantic import Field, model_validator
from tidemark.runtime.service_config import Address, HostPort, ServiceConfig

SERVICE: Final = "controller"
_WILDCARDS: Final = ("0.0.0.0", "::")


class ControllerConfig(ServiceConfig):
    """Every option of the controller: unit in its name, bound, default, why."""

    controller_id: int = Field(
        ..., ge=0, le=2**31 - 1, description="this replica's number, unlike any other's"
    )
    grpc_listen: Address = Field(
        "127.0.0.1:19090", description="where the controller's gRPC service listens"
    )
    grpc_advertised: str = Field(
        "", description="host:port where brokers reach it; empty: what grpc.listen says"
    )
    rest_listen: Address = Field(
        "127.0.0.1:8080",
        description="where REST, /metrics, /livez, /readyz and /loglevel are served",
    )
    num_partitions: int = Field(
        1, ge=1, le=10_000, description="partitions of a topic that names no number"
    )
    default_replication_factor: int = Field(
        1, ge=1, le=32_767, description="replicas of a partition for a topic that names no number"
    )
    partitions_per_request_max: int = Field(
        10_000, ge=1, description="partitions that one request may create"
    )
    requests_waiting_max: int = Field(
        4_096, ge=1, description="requests that wait for the store; beyond it callers are refused"
    )
    feed_subscribers_max: int = Field(
        1_024, ge=1, description="followers of the metadata feed at a time"
    )
    feed_updates_queued_max: int = Field(
        256, ge=1, description="updates queued for one follower; beyond it it starts over"
    )
    lease_ms: int = Field(
        3_000,
        ge=300,
        description="how long a leader that cannot be reached keeps its office; the same on every"
        " broker and controller",
    )
    lease_ms_before: int = Field(
        0,
        ge=0,
        description="what lease.ms is being changed from: brokers with that one are let in too, and"
        " the longer lease is waited for; 0: it is not being changed",
    )
    feed_lost_fence_ms: int = Field(
        500,
        ge=0,
        description="how long a broker's metadata stream may be broken before the broker is fenced",
    )
    feed_deserted_resign_ms: int = Field(
        20_000,
        ge=0,
        description="how long after its election a controller stays that no living broker listens"
        " to; 0: for ever",
    )
    auto_leader_rebalance_enable: bool = Field(
        default=True, description="whether preferred replicas are given their partitions back"
    )
    leader_imbalance_check_interval_seconds: int = Field(
        300, ge=1, description="how often preferred replicas are looked at"
    )
    zookeeper_connect_timeout_ms: int = Field(
        30_000, ge=100, description="how long to wait for ZooKeeper when starting"
    )

    @model_validator(mode="after")
    def _advertise_something(self) -> Self:
        """Nobody can connect to a wildcard address."""
        if not self.grpc_advertised and HostPort.parse(self.grpc_listen).host in _WILDCARDS:
            raise ValueError(
                f"grpc.listen is {self.grpc_listen}: set grpc.advertised to where brokers reach it"
            )
        return self
