"""One request to a page, with all that its function needs to answer it."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from tidemark.model.metadata import ClusterImage

from controller.admin.context import AdminContext
from controller.admin.errors import AdminError
from controller.console.done import DONE
from controller.console.forms import FORM_TOKEN, BadFormError, Form
from controller.console.navigation import navigation
from controller.console.routing import raw_path
from controller.console.tables import Row, Shown, Table
from controller.login.authentication import SESSION, requester_of
from controller.login.logins import RestLogins

_THEMES: Final = ("light", "dark")
_SEE_OTHER: Final = 303


class NotFoundError(Exception):
    """The subject of a page does not exist. The message has the next step."""


class Visit:
    """A request, and the ways to answer it."""

    def __init__(
        self,
        request: Request,
        admin: Callable[[], AdminContext],
        environment: Environment,
        logins: RestLogins,
    ) -> None:
        self.request = request
        self.logins = logins
        self._admin = admin
        self._environment = environment

    @property
    def user(self) -> str:
        """Principal of the reader, to be shown; '' if nobody has to log in."""
        return requester_of(self.request.scope).principal if self.session else ""

    @property
    def host(self) -> str:
        """Address of the reader."""
        return requester_of(self.request.scope).host

    @property
    def session(self) -> str:
        """Name of the session in the tokens of forms; '' if nobody has to log in."""
        return str(self.request.scope.get(SESSION, ""))

    @property
    def may_log_out(self) -> bool:
        """True if the reader has a session, and not just a certificate or a header."""
        return self.logins.cookie_name in self.request.cookies

    @property
    def form_token(self) -> Markup:
        """Hidden field of every form that changes something."""
        if not self.session:
            return Markup()
        field = Markup('<input type="hidden" name="{}" value="{}">')
        return field.format(FORM_TOKEN, self.logins.form_token(self.session))

    def check_form(self, form: Form) -> None:
        """Refuse a form that a page of another site may have sent. Raises BadFormError."""
        if self.session and not self.logins.is_form_token(self.session, form.text(FORM_TOKEN)):
            raise BadFormError(
                403, "this form belongs to another session; open the page again, and send it"
            )

    @cached_property
    def admin(self) -> AdminContext:
        """Context of the administration. Raises AdminError while the controller starts."""
        return self._admin()

    @property
    def image(self) -> ClusterImage:
        """Metadata of the cluster. Raises AdminError before there is any."""
        return self.admin.image

    @property
    def query(self) -> Mapping[str, str]:
        """Parameters of the URL."""
        return self.request.query_params

    @property
    def here(self) -> str:
        """Path and query of the page."""
        query = self.request.url.query
        return raw_path(self.request.scope) + (f"?{query}" if query else "")

    @property
    def done(self) -> str:
        """Sentence about the change that led to this page; '' without one."""
        return DONE.get(self.query.get("done", ""), "")

    @property
    def theme(self) -> str:
        """Theme that the reader has chosen; '' for that of the system."""
        theme = self.request.cookies.get("theme", "")
        return theme if theme in _THEMES else ""

    @property
    def is_part(self) -> bool:
        """True if a script requests a part of a page."""
        return "x-part" in self.request.headers

    def is_below(self, address: str) -> bool:
        """True if the page is this one, or below it in the navigation."""
        path = raw_path(self.request.scope)
        return path == address or (address != "/" and path.startswith(address + "/"))

    def table(self, table: Table[Row], rows: Iterable[Row]) -> Shown[Row]:
        """Return the page of rows that the URL selects."""
        return table.show(rows, self.query)

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """Return a page made of a template."""
        known = self._frame()
        text = self._environment.get_template(template).render(
            **known, visit=self, status=status, **values
        )
        return HTMLResponse(text, status_code=status)

    def _frame(self) -> Mapping[str, Any]:
        """Return the cluster's id and the navigation, as far as they are known."""
        try:
            image = self.image
        except AdminError:
            return {"cluster_id": "", "navigation": navigation(ClusterImage())}
        return {"cluster_id": image.cluster_id, "navigation": navigation(image)}

    def go_on(self, path: str, **query: str) -> Response:
        """Return a redirect to a page after a form: a reload does not send the form again."""
        return RedirectResponse(path + ("?" + urlencode(query) if query else ""), _SEE_OTHER)
