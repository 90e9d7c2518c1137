"""Option of a broker that decides which replicas consumers read from (KIP-392)."""

from typing import Final

from pydantic import Field, field_validator
from tidemark.runtime.service_config import ServiceConfig

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""Kafka's selector of the replica in the consumer's rack."""


class ReadReplicaConfig(ServiceConfig):
    """Choice of replicas for consumers, with Kafka's name and default."""

    replica_selector_class: str = Field(
        "",
        description=f"{RACK_AWARE}: a leader directs consumers to an in-sync follower in the rack"
        " of their client.rack, and followers serve consumers; empty: consumers read from leaders;"
        " set it on all brokers",
    )

    @property
    def followers_serve(self) -> bool:
        """True if followers serve consumers."""
        return bool(self.replica_selector_class)

    @field_validator("replica_selector_class")
    @classmethod
    def _known_selector(cls, name: str) -> str:
        if name.strip() not in ("", RACK_AWARE):
            raise ValueError(f"{name} does not exist here: use {RACK_AWARE}, or nothing")
        return name.strip()
