"""Configuration of a txn-coordinator. Keys have Kafka's names where Kafka has one."""

from typing import Final, Self

from pydantic import Field, model_validator
from tidemark.runtime.service_config import Address, ServiceConfig, check_advertised

SERVICE: Final = "txn-coordinator"
_DAY_MS: Final = 24 * 3_600_000


class TxnCoordinatorConfig(ServiceConfig):
    """All options of a txn-coordinator, with unit, bounds, default and meaning."""

    coordinator_id: int = Field(
        ..., ge=0, le=2**31 - 1, description="number of this coordinator, unique in the cluster"
    )
    grpc_listen: Address = Field("127.0.0.1:19190", description="address of the gRPC server")
    grpc_advertised: str = Field(
        "", description="host:port that brokers and clients use for gRPC; default: grpc.listen"
    )
    transaction_max_timeout_ms: int = Field(
        900_000,
        ge=1,
        le=2**31 - 1,
        description="maximum timeout that a transaction may request",
    )
    transactional_id_expiration_ms: int = Field(
        7 * _DAY_MS,
        ge=1,
        description="a transactional id without a transaction for this long is forgotten",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = Field(
        3_600_000, ge=1, description="interval of the checks for expired transactional ids"
    )
    transaction_writers_max: int = Field(
        10_000, ge=1, description="maximum number of writers of a transaction"
    )
    transaction_writer_partitions_max: int = Field(
        100_000,
        ge=1,
        description="maximum number of pairs of writer and partition of a transaction",
    )
    transaction_state_log_append_timeout_ms: int = Field(
        20_000,
        ge=100,
        description="a write to __transaction_state that is not committed after this time"
        " fails, and its shard is loaded again",
    )
    shard_requests_waiting_max: int = Field(
        4_096,
        ge=1,
        description="maximum number of requests that wait at a shard; further ones are refused",
    )
    request_timeout_ms: int = Field(
        30_000, ge=100, description="time that a request without a deadline of its own may take"
    )
    marker_targets_per_request_max: int = Field(
        5_000, ge=1, description="maximum number of markers in a WriteMarkers request to a broker"
    )
    marker_request_timeout_ms: int = Field(
        30_000, ge=100, description="time that a broker may take to answer a WriteMarkers request"
    )
    zookeeper_connect_timeout_ms: int = Field(
        30_000, ge=100, description="time to wait for ZooKeeper at the start"
    )

    @model_validator(mode="after")
    def _check_advertised(self) -> Self:
        check_advertised(self.grpc_listen, self.grpc_advertised)
        return self
