"""Options of a broker that decide what its clients may do."""

from typing import Final

from pydantic import Field, field_validator, model_validator

from tidemark.protocol.acl_authorizer import AclPolicy
from tidemark.runtime.service_config import ServiceConfig

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""Kafka's authorizer, by whose rules ACLs are enforced."""


class AuthorizationConfig(ServiceConfig):
    """Options of the authorizer, with Kafka's names and defaults."""

    authorizer_class_name: str = Field(
        "",
        description=f"{STANDARD_AUTHORIZER}: clients may do what ACLs allow; empty: everything",
    )
    super_users: str = Field(
        "",
        description="principals that may do everything, User:name;User:name; an authorizer needs"
        " one at least, which sets the first ACLs",
    )
    allow_everyone_if_no_acl_found: bool = Field(
        default=False,
        description="everybody may do everything to a resource that no ACL covers",
    )

    @property
    def acl_policy(self) -> AclPolicy | None:
        """Policy of the authorizer; None if there is none."""
        if not self.authorizer_class_name:
            return None
        return AclPolicy(frozenset(_names(self.super_users)), self.allow_everyone_if_no_acl_found)

    @field_validator("authorizer_class_name")
    @classmethod
    def _known_authorizer(cls, name: str) -> str:
        if name.strip() not in ("", STANDARD_AUTHORIZER):
            raise ValueError(f"{name} does not exist here: use {STANDARD_AUTHORIZER}, or nothing")
        return name.strip()

    @field_validator("super_users")
    @classmethod
    def _principals(cls, text: str) -> str:
        for name in _names(text):
            kind, _, user = name.partition(":")
            if kind != "User" or not user:
                raise ValueError(f"{name!r} is no principal: use User:name;User:name")
        return text

    @model_validator(mode="after")
    def _someone_may(self) -> "AuthorizationConfig":
        if self.authorizer_class_name and not _names(self.super_users):
            raise ValueError(
                "authorizer.class.name is set and super.users is empty: nobody could set ACLs. Set"
                " super.users=User:name, and the password of that user with `tidemark user add`"
                " through the listener INTERNAL"
            )
        return self


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(";") if name.strip()]
