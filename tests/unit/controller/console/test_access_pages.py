"""Pages about users and quotas, for a reader who may see neither."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from controller.admin.errors import AdminError
from controller.console.forms import Form
from controller.console.pages import access_quotas, access_users
from tidemark.model.metadata import ClusterImage
from tidemark.model.quotas import QuotaEntity
from tidemark.model.scram import ScramCredential, ScramMechanism
from unit.controller.admin.contexts import a_context
from unit.controller.worlds import a_cluster

CREDENTIAL = ScramCredential(ScramMechanism.SCRAM_SHA_256, 4_096, b"s", b"k", b"k")


def cluster() -> ClusterImage:
    """A cluster with the user bob, who has a quota."""
    quotas = {QuotaEntity(user="bob"): {"producer_byte_rate": 5.0}}
    return replace(a_cluster().image, quotas=quotas, users={"bob": (CREDENTIAL,)})


def visit(**query: str) -> Any:
    """A visit that answers with what it would put into a page."""
    ctx = a_context(cluster(), {})
    page = lambda _, **values: values  # noqa: E731 - a stub
    return SimpleNamespace(admin=ctx, image=ctx.image, query=query, page=page)


@pytest.mark.parametrize("user", ["bob", "nobody"])
@pytest.mark.parametrize("show", [access_quotas.show_set, access_quotas.show_remove])
def test_quotas_are_shown_to_who_may_see_them(show: Callable[..., Any], user: str) -> None:
    with pytest.raises(AdminError, match="may not DESCRIBE_CONFIGS") as refused:
        asyncio.run(show(visit(kind="user", user=user)))
    assert refused.value.status == 403


@pytest.mark.parametrize("user", ["bob", "nobody"])
@pytest.mark.parametrize("rate", ["", "7"])
def test_a_form_does_not_show_which_quotas_there_are(user: str, rate: str) -> None:
    fields = {"kind": "user", "user": user, "producer_byte_rate": rate}
    shown = asyncio.run(access_quotas.set_values(visit(), Form(list(fields.items()))))
    assert cast("Any", shown)["problem"].status == 403


@pytest.mark.parametrize("user", ["bob", "nobody"])
def test_a_form_does_not_show_which_users_there_are(user: str) -> None:
    fields = {"user": user, "password": "p", "again": "p", "new": "1"}
    shown = asyncio.run(access_users.set_password(visit(), Form(list(fields.items()))))
    assert cast("Any", shown)["problem"].status == 403
