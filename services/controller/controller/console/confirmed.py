"""Changes that lose something: their page requires a name to be typed before them."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from starlette.responses import Response

from controller.admin.errors import AdminError
from controller.console.forms import Form
from controller.console.visit import Visit


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """Page before a change, on which its subject has to be typed, and the frame of the change."""

    title: str
    subject: str
    """Text that has to be typed."""
    mismatch: str
    """Sentence for another text."""
    loses: str
    crumbs: Sequence[tuple[str, str]]
    back: str
    """Path of the page that a cancel leads to."""
    line: str
    """Command that does the same."""

    def ask(self, visit: Visit, problem: str = "") -> Response:
        """Return the page, with the reason why the change was not made if there is one."""
        return visit.page(
            "confirm.html",
            status=400 if problem else 200,
            title=self.title,
            subject=self.subject,
            crumbs=self.crumbs,
            loses=self.loses,
            problem=problem,
            back=self.back,
            line=self.line,
        )

    async def carry_out(
        self,
        visit: Visit,
        form: Form,
        change: Callable[[], Awaitable[None]],
        *,
        then: str,
        done: str,
    ) -> Response:
        """Make the change if the subject was typed, and go on to a page with a sentence of DONE."""
        if form.text("confirm") != self.subject:
            return self.ask(visit, self.mismatch)
        try:
            await change()
        except AdminError as problem:
            return self.ask(visit, problem.message)
        return visit.go_on(then, done=done)
