"""Options of every coordinator service."""

from typing import Self

from pydantic import Field, model_validator

from tidemark.runtime.cluster_config import ClusterConfig
from tidemark.runtime.service_config import Address, check_advertised


class CoordinatorConfig(ClusterConfig):
    """Options of a coordinator replica. A service gives ``grpc_listen`` its default."""

    coordinator_id: int = Field(
        ..., ge=0, le=2**31 - 1, description="number of this coordinator, unique in the cluster"
    )
    grpc_listen: Address = Field(..., description="address of the gRPC server")
    grpc_advertised: str = Field(
        "", description="host:port that brokers and clients use for gRPC; default: grpc.listen"
    )
    shard_requests_waiting_max: int = Field(
        4_096,
        ge=1,
        description="maximum number of requests that wait at a shard; further ones are refused",
    )
    request_timeout_ms: int = Field(
        30_000, ge=100, description="time that a request without a deadline of its own may take"
    )

    @model_validator(mode="after")
    def _check_advertised(self) -> Self:
        check_advertised(self.grpc_listen, self.grpc_advertised)
        return self
