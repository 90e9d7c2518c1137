"""Login and logout of the console."""

import asyncio
from typing import Final

from starlette.responses import RedirectResponse, Response
from tidemark.runtime.access.header_logins import BASIC, RefusedLoginError, TooManyLoginsError

from controller.console.forms import Form
from controller.console.visit import Visit

_SEE_OTHER: Final = 303
_NAME_CHARS_MAX: Final = 255
_WRONG: Final = "The password does not fit, or there is no such user."


async def show(visit: Visit) -> Response:
    """Show the form."""
    return _page(visit, "", "", visit.query.get("back", "/"))


async def log_in(visit: Visit, form: Form) -> Response:
    """Begin a session, if the password fits."""
    user, back = form.text("user")[:_NAME_CHARS_MAX], _own(form.text("back"))
    logins, host = visit.logins, visit.host
    if BASIC not in logins.mechanisms:
        return _page(visit, user, "", back)
    try:
        await logins.check_password(user, form.text("password"), host)
        cookie = logins.new_cookie(user)
    except RefusedLoginError as refusal:
        logins.count_failure(refusal, host)
        await asyncio.sleep(logins.delay_s)
        return _page(visit, user, _WRONG, back, status=401)
    except TooManyLoginsError as flood:
        return _page(visit, user, f"{flood}. Wait a second.", back, status=429)
    response = RedirectResponse(back, _SEE_OTHER)
    response.set_cookie(
        logins.cookie_name,
        cookie,
        max_age=logins.session_ms // 1_000,
        secure=logins.has_tls,
        httponly=True,
        samesite="strict",
    )
    return response


async def log_out(visit: Visit, _: Form) -> Response:
    """Forget the session in this browser."""
    logins = visit.logins
    response = RedirectResponse("/login", _SEE_OTHER)
    response.delete_cookie(
        logins.cookie_name, secure=logins.has_tls, httponly=True, samesite="strict"
    )
    return response


def _page(visit: Visit, user: str, problem: str, back: str, *, status: int = 200) -> Response:
    return visit.page(
        "login.html",
        status=status,
        user=user,
        problem=problem,
        back=_own(back),
        takes_passwords=BASIC in visit.logins.mechanisms,
        mechanisms=visit.logins.mechanisms,
    )


def _own(place: str) -> str:
    """Return a path of this console; / for any other place, to which a link could lead."""
    is_path = place.startswith("/") and not place.startswith("//")
    return place if is_path and "\\" not in place and place.isprintable() else "/"
