"""Options of the audit, of brokers and controllers."""

from typing import Final, Literal

from pydantic import Field, field_validator

from tidemark.protocol.audit import (
    OPERATION_NAMES,
    OUTCOMES,
    AuditRules,
    AuditTrail,
    read_resources,
)
from tidemark.runtime.service_config import CommaList, ServiceConfig

TOPIC: Final = "topic"
LOG: Final = "log"
DROP: Final = "drop"
REFUSE: Final = "refuse"


class AuditConfig(ServiceConfig):
    """Events that are written, their places, and the answer when there is no room for them."""

    audit_sinks: CommaList = Field(
        (),
        description="places of audit events: topic (__audit_log), log (the log of the process), or"
        " both; without one there is no audit",
    )
    audit_interval_ms: int = Field(
        10_000,
        ge=100,
        le=600_000,
        description="interval at which events are written; what is the same within it is one event"
        " with a count. A process that is killed loses the events of an interval at most",
    )
    audit_entries_max: int = Field(
        10_000,
        ge=100,
        le=1_000_000,
        description="maximum number of different events of an interval, and of events that wait to"
        " be written",
    )
    audit_when_full: Literal["drop", "refuse"] = Field(
        "drop",
        description="drop: what finds no room is counted, and allowed as usual (fails open);"
        " refuse: logins, operations and changes that cannot be written down are refused (fails"
        " closed)",
    )
    audit_exclude_principals: str = Field(
        "", description="principals of which nothing is written, User:name;User:name"
    )
    audit_exclude_operations: CommaList = Field(
        ("Describe", "DescribeConfigs"),
        description="operations that are not written where they are allowed, such as Read or"
        " Write; denials are always written",
    )
    audit_exclude_resources: CommaList = Field(
        (), description="resources of which nothing is written: Topic:name, Group:prefix*"
    )
    audit_exclude_outcomes: CommaList = Field(
        (), description=f"outcomes that are not written, of {', '.join(OUTCOMES)}"
    )

    @property
    def audit_trail(self) -> AuditTrail | None:
        """A new trail; None without audit."""
        if not self.audit_sinks:
            return None
        principals = (one.strip() for one in self.audit_exclude_principals.split(";"))
        rules = AuditRules(
            frozenset(one for one in principals if one),
            frozenset(self.audit_exclude_operations),
            read_resources(self.audit_exclude_resources),
            frozenset(self.audit_exclude_outcomes),
        )
        refuses = self.audit_when_full == REFUSE
        return AuditTrail(rules, entries_max=self.audit_entries_max, refuses=refuses)

    @field_validator("audit_sinks")
    @classmethod
    def _known_sinks(cls, sinks: tuple[str, ...]) -> tuple[str, ...]:
        return _known(sinks, (TOPIC, LOG))

    @field_validator("audit_exclude_operations")
    @classmethod
    def _known_operations(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return _known(names, sorted(OPERATION_NAMES))

    @field_validator("audit_exclude_outcomes")
    @classmethod
    def _known_outcomes(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return _known(names, OUTCOMES)

    @field_validator("audit_exclude_resources")
    @classmethod
    def _readable_resources(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        read_resources(texts)
        return texts


def _known(names: tuple[str, ...], all_of: "tuple[str, ...] | list[str]") -> tuple[str, ...]:
    for name in names:
        if name not in all_of:
            raise ValueError(f"{name!r} is not one of {', '.join(all_of)}")
    return names
