"""What a txn-coordinator can be told. The keys are Kafka's where Kafka has one."""

from typing import Final, Self

from pydantic import Field, model_validator
from tidemark.runtime.service_config import Address, HostPort, ServiceConfig

SERVICE: Final = "txn-coordinator"
_WILDCARDS: Final = ("0.0.0.0", "::")
_DAY_MS: Final = 24 * 3_600_000


class TxnCoordinatorConfig(ServiceConfig):
    """Every option of a txn-coordinator: unit in its name, bound, default, why."""

    coordinator_id: int = Field(
        ..., ge=0, le=2**31 - 1, description="this replica's number, unlike any other's"
    )
    grpc_listen: Address = Field(
        "127.0.0.1:19190", description="where the coordinator's gRPC service listens"
    )
    grpc_advertised: str = Field(
        "", description="host:port where brokers and clients reach it; empty: what grpc.listen says"
    )
    transaction_max_timeout_ms: int = Field(
        900_000,
        ge=1,
        le=2**31 - 1,
        description="longest timeout that a transaction may ask for",
    )
    transactional_id_expiration_ms: int = Field(
        7 * _DAY_MS,
        ge=1,
        description="a transactional id without a transaction for so long is forgotten",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = Field(
        3_600_000, ge=1, description="how often transactional ids are looked at that have expired"
    )
    transaction_writers_max: int = Field(
        10_000, ge=1, description="writers that one transaction may enlist"
    )
    transaction_writer_partitions_max: int = Field(
        100_000,
        ge=1,
        description="pairs of writer and partition that one transaction may hold",
    )
    transaction_state_log_append_timeout_ms: int = Field(
        20_000,
        ge=100,
        description="a write to __transaction_state that is not committed after so long has failed:"
        " its shard is loaded again",
    )
    shard_requests_waiting_max: int = Field(
        4_096, ge=1, description="requests that wait at one shard; beyond it callers are refused"
    )
    request_timeout_ms: int = Field(
        30_000, ge=100, description="how long a request without a deadline of its own may take"
    )
    marker_targets_per_request_max: int = Field(
        5_000, ge=1, description="markers in one WriteMarkers request to a broker"
    )
    marker_request_timeout_ms: int = Field(
        30_000, ge=100, description="how long a broker may take to answer one"
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
