"""The reader's choice of a theme, kept in a cookie."""

from starlette.responses import Response

from controller.console.forms import Form
from controller.console.visit import Visit

_YEAR_S = 365 * 24 * 3_600


async def set_theme(visit: Visit, form: Form) -> Response:
    """Set the theme, and show the page again from which the form came."""
    back = form.text("back", "/")
    # Only a path of this origin: "//host" and "/\host" lead elsewhere.
    safe = back if back.startswith("/") and not back.startswith(("//", "/\\")) else "/"
    response = visit.go_on(safe)
    theme = form.text("theme")
    if theme in ("light", "dark"):
        response.set_cookie("theme", theme, max_age=_YEAR_S, samesite="strict", httponly=True)
    else:
        response.delete_cookie("theme", samesite="strict", httponly=True)
    return response
