"""Access: users that log in with SCRAM, their passwords, and their removal."""

from typing import Final

from starlette.responses import Response

from controller.admin import users
from controller.admin.errors import AdminError, bad_value
from controller.admin.users import UserView
from controller.console.confirmed import Confirmed
from controller.console.forms import Form
from controller.console.names import command
from controller.console.pages.access import ROOM
from controller.console.tables import Column, Table
from controller.console.visit import Visit

USERS: Final[Table[UserView]] = Table(
    columns=(
        Column("user", "User", lambda row: row.user_name),
        Column("mechanisms", "Mechanisms, iterations", lambda row: len(row.credentials)),
        Column("actions", ""),
    ),
    text_of=lambda row: f"{row.principal} {' '.join(one.mechanism for one in row.credentials)}",
    sort="user",
    noun="user",
)
_ROOM: Final = ("/access/users", "Users")


async def show_all(visit: Visit) -> Response:
    """Show all users that have credentials."""
    return visit.page("access_users.html", users=visit.table(USERS, users.listed(visit.admin)))


async def show_password(visit: Visit) -> Response:
    """Show the form that adds a user, or sets the password of the one that ?user= names."""
    return _password_page(visit, visit.query.get("user", ""))


async def set_password(visit: Visit, form: Form) -> Response:
    """Set a user's password. It is never shown again, and not put into a form."""
    name = form.text("user").strip()
    try:
        if form.text("password") != form.text("again"):
            raise bad_value("the two passwords differ", field="again")
        if form.text("new") and users.exists(visit.admin, name):
            raise bad_value(
                f"user {name!r} exists already",
                field="user",
                remedy="choose another name, or set the password of this user in the list",
            )
        await users.set_password(visit.admin, name, form.text("password"))
    except AdminError as problem:
        return _password_page(visit, name, is_new=bool(form.text("new")), problem=problem)
    return visit.go_on("/access/users", done="password-set")


def _password_page(
    visit: Visit, name: str, *, is_new: bool = False, problem: AdminError | None = None
) -> Response:
    is_new = is_new or not name
    return visit.page(
        "access_password.html",
        status=problem.status if problem else 200,
        name=name,
        is_new=is_new,
        problem=problem,
        line=command("user", "add" if is_new else "set-password", name or "NAME"),
    )


async def show_remove(visit: Visit, name: str) -> Response:
    """Ask before a user is removed."""
    return _removal(users.get(visit.admin, name)).ask(visit)


async def remove(visit: Visit, form: Form, name: str) -> Response:
    """Remove a user whose name has been typed."""
    return await _removal(users.get(visit.admin, name)).carry_out(
        visit,
        form,
        lambda: users.delete(visit.admin, name),
        then="/access/users",
        done="user-removed",
    )


def _removal(user: UserView) -> Confirmed:
    return Confirmed(
        title="Remove the user",
        subject=user.user_name,
        mismatch="The name that was typed is not the user's.",
        loses="the credentials: the user cannot log in any more. Connections that are open stay"
        " open, and ACLs of the principal stay",
        crumbs=[ROOM, _ROOM],
        back="/access/users",
        line=command("user", "remove", user.user_name, "--yes"),
    )
