"""Configuration of a txn-coordinator. Keys have Kafka's names where Kafka has one."""

from typing import Final

from pydantic import Field
from tidemark.runtime.coordinator.config import CoordinatorConfig
from tidemark.runtime.service_config import Address

SERVICE: Final = "txn-coordinator"
_DAY_MS: Final = 24 * 3_600_000


class TxnCoordinatorConfig(CoordinatorConfig):
    """All options of a txn-coordinator, with unit, bounds, default and meaning."""

    grpc_listen: Address = Field("127.0.0.1:19190", description="address of the gRPC server")
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
    marker_targets_per_request_max: int = Field(
        5_000,
        ge=1,
        le=100_000,  # brokers refuse larger requests
        description="maximum number of markers in a WriteMarkers request to a broker",
    )
    marker_request_timeout_ms: int = Field(
        30_000, ge=100, description="time that a broker may take to answer a WriteMarkers request"
    )
