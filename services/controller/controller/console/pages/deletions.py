"""Deletions of consumer groups and share groups: the name is typed, then the group is deleted."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.responses import Response

from controller.admin.context import AdminContext
from controller.console.confirmed import Confirmed
from controller.console.forms import Form
from controller.console.names import command, path
from controller.console.visit import Visit


@dataclass(frozen=True, slots=True)
class Deletions:
    """Deletions of one kind of group."""

    room: str
    """First segment of the path of its pages."""
    title: str
    """Title of the page that lists the groups."""
    heading: str
    noun: str
    """Word of the command line, ``group`` or ``share``."""
    loses: str
    delete: Callable[[AdminContext, str], Awaitable[None]]

    async def show(self, visit: Visit, group_id: str) -> Response:
        """Ask for the name before a group is deleted."""
        return self._of(group_id).ask(visit)

    async def change(self, visit: Visit, form: Form, group_id: str) -> Response:
        """Delete a group whose name has been typed."""
        return await self._of(group_id).carry_out(
            visit,
            form,
            lambda: self.delete(visit.admin, group_id),
            then=path(self.room),
            done="group-deleted",
        )

    def _of(self, group_id: str) -> Confirmed:
        here = path(self.room, group_id)
        return Confirmed(
            title=self.heading,
            subject=group_id,
            mismatch="The name that was typed is not the group's.",
            loses=self.loses,
            crumbs=[(path(self.room), self.title), (here, group_id)],
            back=here,
            line=command(self.noun, "delete", group_id, "--yes"),
        )
