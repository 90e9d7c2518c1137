"""Users that log in with SCRAM: listed from the metadata, given passwords, deleted.

A password is neither kept nor shown: it leaves this process as a salted hash.
"""

from collections.abc import Sequence
from typing import Final, Literal

from pydantic import Field
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import TidemarkError
from tidemark.model.scram import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISM_NAMES,
    UserCredentials,
    check_user_name,
)

from controller.admin.context import AdminContext
from controller.admin.errors import bad_value, from_cluster, not_found
from controller.admin.models import Model

MechanismName = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
PASSWORD_CHARS_MAX: Final = 1_024
ITERATIONS: Final = (ITERATIONS_MIN, ITERATIONS_DEFAULT, ITERATIONS_MAX)


class CredentialView(Model):
    """Credential of a user."""

    mechanism: str = Field(examples=["SCRAM-SHA-256"])
    iterations: int = Field(examples=[8_192])


class UserView(Model):
    """User with credentials."""

    user_name: str = Field(examples=["alice"])
    principal: str = Field(examples=["User:alice"])
    credentials: list[CredentialView]


def listed(ctx: AdminContext) -> list[UserView]:
    """Return all users that have credentials, by name. Raises AdminError."""
    ctx.require(Operation.DESCRIBE, CLUSTER)
    return [_view(name, credentials) for name, credentials in sorted(ctx.image.users.items())]


def exists(ctx: AdminContext, name: str) -> bool:
    """Return True if a user has credentials. Raises AdminError."""
    ctx.require(Operation.DESCRIBE, CLUSTER)
    return name in ctx.image.users


def get(ctx: AdminContext, name: str) -> UserView:
    """Return one user. Raises AdminError."""
    ctx.require(Operation.DESCRIBE, CLUSTER)
    found = ctx.image.users.get(name)
    if not found:
        raise not_found(
            f"there is no user {name!r}",
            field="user_name",
            remedy="GET /v3/clusters/{cluster_id}/users lists the users",
        )
    return _view(name, found)


def _view(name: str, credentials: UserCredentials) -> UserView:
    return UserView(
        user_name=name,
        principal=f"User:{name}",
        credentials=[
            CredentialView(mechanism=one.mechanism.sasl_name, iterations=one.iterations)
            for one in credentials
        ],
    )


async def set_password(
    ctx: AdminContext,
    name: str,
    password: str,
    *,
    mechanisms: Sequence[MechanismName] = (),
    iterations: int = ITERATIONS_DEFAULT,
    dry_run: bool = False,
) -> None:
    """Set a user's password for mechanisms (none: for all); the user need not exist. Raises
    AdminError.
    """
    ctx.require(Operation.ALTER, CLUSTER)
    if not password:
        raise bad_value("the password is empty", field="password")
    try:
        check_user_name(name)
    except TidemarkError as refused:
        raise from_cluster(refused, field="user_name") from None
    if dry_run:
        return
    before = ctx.image.users.get(name)
    async with ctx.brokers.client() as admin:
        await admin.set_passwords(
            {name: password},
            mechanisms=tuple(mechanisms or MECHANISM_NAMES),
            iterations=iterations,
        )
    await ctx.until_visible(lambda image: image.users.get(name) != before)


async def delete(ctx: AdminContext, name: str) -> None:
    """Delete a user with all credentials. Raises AdminError."""
    await check_delete(ctx, name)
    async with ctx.brokers.client() as admin:
        await admin.delete_users([name])
    await ctx.until_visible(lambda image: name not in image.users)


async def check_delete(ctx: AdminContext, name: str) -> None:
    """Check that the caller may delete a user, who exists. Raises AdminError."""
    ctx.require(Operation.ALTER, CLUSTER)
    get(ctx, name)
