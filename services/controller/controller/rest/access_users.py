"""Users that log in with SCRAM: listed, given passwords, deleted. No answer has a password."""

from typing import Annotated, Literal

from fastapi import Path, Query, Request, Response
from pydantic import Field, SecretStr

from controller.admin import users as admin
from controller.admin.models import Input
from controller.admin.paging import page
from controller.rest.changing import changed_or_checked, done, without_content
from controller.rest.problems import CHANGES, RESPONSES
from controller.rest.shapes import (
    NAME_CHARS_MAX,
    PAGE_SIZE_DEFAULT,
    Collection,
    Ctx,
    Cursor,
    Here,
    Links,
    Name,
    PageSize,
    Resource,
    cluster_router,
)

router = cluster_router("Access", {**RESPONSES, **CHANGES})

DryRun = Annotated[bool, Query(description="check, and change nothing")]
UserName = Annotated[
    Name, Path(description="name of a user", examples=["alice"], max_length=NAME_CHARS_MAX)
]
_FEWEST, _USUAL, _MOST = admin.ITERATIONS


class UserData(admin.UserView, Resource):
    """User with credentials, without keys."""

    kind: Literal["TidemarkUser"] = "TidemarkUser"
    cluster_id: str


class UserDataList(Collection[UserData]):
    """Page of users."""

    kind: Literal["TidemarkUserList"] = "TidemarkUserList"
    total: int = Field(examples=[1])


class NewPassword(Input):
    """Password of a user. Only a salted hash of it is kept."""

    password: SecretStr = Field(
        min_length=1, max_length=admin.PASSWORD_CHARS_MAX, examples=["a long one"]
    )
    mechanisms: list[admin.MechanismName] = Field(
        default=[], max_length=2, description="empty: all", examples=[["SCRAM-SHA-256"]]
    )
    iterations: int = Field(default=_USUAL, ge=_FEWEST, le=_MOST, examples=[_USUAL])


def _data(here: Links, view: admin.UserView) -> UserData:
    return UserData(
        **view.model_dump(),
        metadata=here.about("users", view.user_name, user=view.user_name),
        cluster_id=here.cluster_id,
    )


@router.get("/users", operation_id="listUsers")
async def list_users(
    request: Request,
    ctx: Ctx,
    here: Here,
    cursor: Cursor = None,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
) -> UserDataList:
    """Return users with their mechanisms and iterations, by name, page by page."""
    listed = {one.user_name: one for one in admin.listed(ctx)}
    found = page(sorted(listed), cursor, page_size)
    return UserDataList(
        metadata=here.listing(found.cursor, request),
        data=[_data(here, listed[name]) for name in found.keys],
        total=found.total,
    )


@router.get("/users/{user_name}", operation_id="getUser")
async def get_user(ctx: Ctx, here: Here, user_name: UserName) -> UserData:
    """Return one user with mechanisms and iterations."""
    return _data(here, admin.get(ctx, user_name))


@without_content(router.put, "/users/{user_name}", "setUserPassword")
async def set_password(
    ctx: Ctx,
    user_name: UserName,
    new: NewPassword,
    dry_run: DryRun = False,  # noqa: FBT002
) -> Response:
    """Set the password of a user, who need not exist. Connections that are open stay open."""
    await admin.set_password(
        ctx,
        user_name,
        new.password.get_secret_value(),
        mechanisms=new.mechanisms,
        iterations=new.iterations,
        dry_run=dry_run,
    )
    return done()


@without_content(router.delete, "/users/{user_name}", "deleteUser")
async def delete_user(
    ctx: Ctx,
    user_name: UserName,
    dry_run: DryRun = False,  # noqa: FBT002
) -> Response:
    """Delete a user with all credentials. Connections that are open stay open."""
    return await changed_or_checked(
        lambda: admin.delete(ctx, user_name),
        lambda: admin.check_delete(ctx, user_name),
        dry_run=dry_run,
    )
