"""Configuration of a controller. Keys have Kafka's names where Kafka has one."""

from typing import Final, Self

from pydantic import Field, model_validator
from tidemark.runtime.audit.config import AuditConfig
from tidemark.runtime.cluster_config import ClusterConfig
from tidemark.runtime.service_config import Address, CommaList, check_advertised

from controller.rest_security_config import RestSecurityConfig

SERVICE: Final = "controller"


class ControllerConfig(RestSecurityConfig, AuditConfig, ClusterConfig):
    """All options of a controller, with unit, bounds, default and meaning."""

    controller_id: int = Field(
        ..., ge=0, le=2**31 - 1, description="number of this controller, unique in the cluster"
    )
    grpc_listen: Address = Field("127.0.0.1:19090", description="address of the gRPC server")
    grpc_advertised: str = Field(
        "", description="host:port that brokers use for gRPC; default: grpc.listen"
    )
    initial_users_file: str = Field(
        "",
        description="file with lines user:password, for instance of the super user: while the"
        " cluster has no user with a password for SCRAM, the active controller makes these",
    )
    rest_allowed_hosts: CommaList = Field(
        (),
        description="further host names that a request to rest.listen may have in its Host header,"
        " for instance that of a proxy; .example.org stands for all names below it, * for any. IP"
        " addresses, localhost and the hosts of rest.listen and grpc.advertised are always allowed;"
        " other names are refused, so that no page of another site can use its own name for this"
        " address (DNS rebinding)",
    )
    rest_node_timeout_ms: int = Field(
        1_500,
        ge=50,
        le=60_000,
        description="time within which a broker has to answer a call of REST or the console; its"
        " part of a list is then reported as missing",
    )
    rest_page_wait_ms: int = Field(
        200,
        ge=1,
        le=60_000,
        description="time for which a list waits for figures of brokers; later ones are shown with"
        " their age by the next request",
    )
    rest_change_timeout_ms: int = Field(
        15_000, ge=100, le=300_000, description="time within which a change by REST has to be made"
    )
    rest_cache_ms: int = Field(
        2_000,
        ge=0,
        le=600_000,
        description="age up to which figures of brokers are shown without asking again",
    )
    rest_body_bytes_max: int = Field(
        1_048_576,
        ge=1_024,
        le=134_217_728,
        description="maximum size of the body of a request to REST",
    )
    rest_requests_max: int = Field(
        64,
        ge=1,
        le=4_096,
        description="maximum number of REST requests at a time; further ones are answered with 429",
    )
    rest_rate_per_second: int = Field(
        100,
        ge=1,
        le=100_000,
        description="maximum rate of REST requests of one client address; further ones are answered"
        " with 429",
    )
    rest_streams_max: int = Field(
        64, ge=1, le=4_096, description="maximum number of event streams (server-sent events)"
    )
    rest_traffic_interval_ms: int = Field(
        5_000,
        ge=0,
        le=600_000,
        description="interval at which every controller asks the brokers for their counters, for"
        " the throughput that REST and the console show; 0: never",
    )
    num_partitions: int = Field(
        1, ge=1, le=10_000, description="partitions of a topic whose creator sets no number"
    )
    default_replication_factor: int = Field(
        1, ge=1, le=32_767, description="replicas of a topic whose creator sets no number"
    )
    delete_topic_enable: bool = Field(
        default=True, description="allow topics to be deleted; the same on all controllers"
    )
    partitions_per_request_max: int = Field(
        10_000, ge=1, description="maximum number of partitions that one request may create"
    )
    requests_waiting_max: int = Field(
        4_096,
        ge=1,
        description="maximum number of requests that wait for ZooKeeper; further ones are refused",
    )
    feed_subscribers_max: int = Field(
        1_024, ge=1, description="maximum number of subscribers of the metadata feed"
    )
    feed_updates_queued_max: int = Field(
        256,
        ge=1,
        description="maximum number of updates queued for a subscriber; beyond it, the"
        " subscriber gets a new snapshot",
    )
    lease_ms: int = Field(
        3_000,
        ge=300,
        description="time for which a leader that cannot be reached may continue to lead; the"
        " same on all brokers and controllers",
    )
    lease_ms_before: int = Field(
        0,
        ge=0,
        description="previous value while lease.ms is being changed: brokers that still have it"
        " may join, and the controller waits for the longer lease; 0: lease.ms is not being"
        " changed",
    )
    feed_lost_fence_ms: int = Field(
        500,
        ge=0,
        description="time for which a broker's metadata stream may be broken before the broker"
        " is fenced",
    )
    feed_deserted_resign_ms: int = Field(
        20_000,
        ge=0,
        description="time after its election at which a controller resigns if no live broker"
        " has subscribed to its feed, and for which a live broker or coordinator may lack a"
        " stream while another has one; 0: no limit",
    )
    auto_leader_rebalance_enable: bool = Field(
        default=True, description="give leadership back to preferred replicas automatically"
    )
    leader_imbalance_check_interval_seconds: int = Field(
        300,
        ge=1,
        description="interval of the checks for partitions that their preferred replica does"
        " not lead",
    )
    kubernetes_release: str = Field(
        "",
        description="release of the Helm chart of which the active controller replaces what lost"
        " nodes had: it gives up the claims on their volumes, so that pods start on other nodes"
        " with empty disks; empty: it replaces nothing",
    )
    kubernetes_namespace: str = Field("", description="namespace of kubernetes.release")
    kubernetes_node_lost_ms: int = Field(
        600_000,
        ge=0,
        description="time for which the active controller has to find a node lost before it"
        " replaces what the node had",
    )

    @model_validator(mode="after")
    def _check_advertised(self) -> Self:
        check_advertised(self.grpc_listen, self.grpc_advertised)
        return self

    @model_validator(mode="after")
    def _check_namespace(self) -> Self:
        if self.kubernetes_release and not self.kubernetes_namespace:
            raise ValueError("kubernetes.release needs kubernetes.namespace")
        return self
