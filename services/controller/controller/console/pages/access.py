"""Access: ACLs with what enforces them, adding and removing them, and "may X do Y?"."""

from collections.abc import Mapping
from typing import Any, Final, get_args

from pydantic import ValidationError
from starlette.responses import Response
from tidemark.model.acls import AclBinding, AclFilter
from tidemark.model.authorization import SUPPORTED_OPERATIONS, ResourceType
from tidemark.plans.access import RESOURCE_WORDS

from controller.admin import acls
from controller.admin.acls import AclInput, AclView, Question
from controller.admin.errors import AdminError, bad_value
from controller.console.confirmed import Confirmed
from controller.console.forms import Form
from controller.console.names import command
from controller.console.tables import Column, Table
from controller.console.visit import NotFoundError, Visit

ROOM: Final = ("/access", "Access")
ACLS: Final[Table[AclView]] = Table(
    columns=(
        Column("principal", "Principal", lambda row: row.principal),
        Column("permission", "Permission", lambda row: row.permission),
        Column("operation", "Operation", lambda row: row.operation),
        Column("resource", "Resource", lambda row: (row.resource_type, row.resource_name)),
        Column("host", "From", lambda row: row.host),
        Column("remove", ""),
    ),
    text_of=lambda row: (
        f"{row.principal} {row.permission} {row.operation} {row.resource_type} {row.resource_name}"
        f" {row.pattern_type} {row.host}"
    ),
    sort="principal",
    noun="ACL",
)
RESOURCES: Final = {
    "TOPIC": "topic",
    "GROUP": "group",
    "TRANSACTIONAL_ID": "transactional id",
    "CLUSTER": "the cluster",
}
CHECKED: Final = {
    kind: [one.name for one in SUPPORTED_OPERATIONS[ResourceType[kind]]] for kind in RESOURCES
}
"""Operations that a resource of a type has."""


# -- the list


async def show_acls(visit: Visit) -> Response:
    """Show all ACLs, and whether they are enforced."""
    rows = [acls.view(one) for one in acls.listed(visit.admin, AclFilter())]
    return visit.page(
        "access_acls.html",
        acls=visit.table(ACLS, rows),
        enforcement=await acls.enforcement(visit.admin),
        resources=RESOURCES,
    )


# -- adding


async def show_add(visit: Visit) -> Response:
    """Show the form of a new ACL."""
    return await _add_page(visit, visit.query)


async def add(visit: Visit, form: Form) -> Response:
    """Show in words what a new ACL would allow, or add it: the form's button decides."""
    values = form.as_mapping()
    try:
        wanted = _wanted(values)
        await acls.create(visit.admin, [wanted], dry_run=not form.checked("execute"))
    except AdminError as problem:
        return await _add_page(visit, values, problem=problem)
    if form.checked("execute"):
        return visit.go_on("/access", done="acl-added", q=wanted.principal)
    return await _add_page(visit, values, wanted=wanted)


def _wanted(values: Mapping[str, str]) -> AclInput:
    """Return the ACL of a form. Raises AdminError."""
    kind = values.get("resource_type", "")
    name = values.get("resource_name", "").strip()
    try:
        return AclInput.model_validate(
            {
                "resource_type": kind,
                "resource_name": "kafka-cluster" if kind == "CLUSTER" else name,
                "pattern_type": "LITERAL" if kind == "CLUSTER" else values.get("pattern_type"),
                "principal": principal_of(values.get("principal", "")),
                "host": values.get("host", "").strip() or "*",
                "operation": values.get("operation"),
                "permission": values.get("permission"),
            }
        )
    except ValidationError as wrong:
        first = wrong.errors()[0]
        field = str(first["loc"][0])
        raise bad_value(f"{field}: {first['msg']}", field=field) from None


def principal_of(text: str) -> str:
    """Return a principal; a bare name is a user's."""
    text = text.strip()
    return text if ":" in text or not text else f"User:{text}"


async def _add_page(
    visit: Visit,
    values: Mapping[str, str],
    *,
    wanted: AclInput | None = None,
    problem: AdminError | None = None,
) -> Response:
    return visit.page(
        "access_add_acl.html",
        status=problem.status if problem else 200,
        values=values,
        wanted=wanted,
        problem=problem,
        resources=RESOURCES,
        operations=get_args(acls.OperationName),
        sentence=sentence,
        line=add_line(wanted),
    )


def add_line(wanted: AclInput | None) -> str:
    """Return the command that adds an ACL."""
    if wanted is None:
        return command("acl", "add", "User:NAME", "read", "--topic", "NAME")
    return command("acl", "add", *_words(wanted.model_dump()))


def remove_line(one: AclView) -> str:
    """Return the command that removes an ACL."""
    return command("acl", "remove", *_words(one.model_dump()), "--yes")


def _words(acl: Mapping[str, Any]) -> list[str]:
    """Return an ACL as arguments of a command."""
    operation = str(acl["operation"]).lower().replace("_", "-")
    words = [str(acl["principal"]), operation]
    words += resource_words(str(acl["resource_type"]), str(acl["resource_name"]))
    words += ["--prefixed"] if acl["pattern_type"] == "PREFIXED" else []
    words += ["--deny"] if acl["permission"] == "DENY" else []
    return words + (["--host", str(acl["host"])] if acl["host"] != "*" else [])


def resource_words(kind: str, name: str) -> list[str]:
    """Return a resource as options of a command."""
    option = f"--{RESOURCE_WORDS[ResourceType[kind]]}"
    return [option] if kind == "CLUSTER" else [option, name]


# -- removing


async def show_remove(visit: Visit) -> Response:
    """Ask before an ACL is removed."""
    return _removal(acls.view(_named(visit))).ask(visit)


async def remove(visit: Visit, form: Form) -> Response:
    """Remove the ACL that the URL names."""
    found = _named(visit)

    async def change() -> None:
        await acls.delete(visit.admin, AclFilter.only(found), dry_run=False)

    return await _removal(acls.view(found)).carry_out(
        visit, form, change, then="/access", done="acl-removed"
    )


def _named(visit: Visit) -> AclBinding:
    """Return the ACL that the query names. Raises NotFoundError without it."""
    for found in acls.listed(visit.admin, AclFilter()):
        names = acls.view(found).model_dump()
        if all(visit.query.get(key) == value for key, value in names.items()):
            return found
    raise NotFoundError("There is no such ACL, or no longer. The list of ACLs has those that are.")


def _removal(one: AclView) -> Confirmed:
    shown = sentence(one)
    return Confirmed(
        title="Remove the ACL",
        subject=one.principal,
        mismatch="The principal that was typed is not the ACL's.",
        loses=f"the rule “{shown}”. It holds for the next request of a client",
        crumbs=[ROOM],
        back="/access",
        line=remove_line(one),
    )


def sentence(one: AclView | AclInput) -> str:
    """Return an ACL in words."""
    verb = "may" if one.permission == "ALLOW" else "may not"
    what = "do everything" if one.operation == "ALL" else one.operation
    kind = RESOURCES.get(one.resource_type, one.resource_type)
    names = {
        "PREFIXED": f"every {kind} whose name begins with {one.resource_name}",
        "LITERAL": f"{kind} {one.resource_name}",
    }
    where = names.get(one.pattern_type, one.resource_name)
    if one.resource_type == "CLUSTER":
        where = "the cluster"
    elif one.resource_name == "*" and one.pattern_type == "LITERAL":
        where = f"every {kind}"
    host = "any address" if one.host == "*" else one.host
    return f"{one.principal} {verb} {what} on {where}, from {host}"


# -- "may X do Y?"


async def show_check(visit: Visit) -> Response:
    """Show the question and, once it is asked, the answer with the rule that decides."""
    asked = visit.query
    found, problem, line = None, None, command("acl", "check", "User:NAME", "read", "--topic", "T")
    if asked.get("principal"):
        try:
            question = _question(asked)
            line = _check_line(question)
            found = await acls.check(visit.admin, question)
        except AdminError as error:
            problem = error
    return visit.page(
        "access_check.html",
        status=problem.status if problem else 200,
        values=asked,
        found=found,
        decided_by=sentence(found.acl) if found and found.acl else "",
        problem=problem,
        resources=RESOURCES,
        checked=CHECKED,
        line=line,
    )


def _question(asked: Mapping[str, str]) -> Question:
    """Return the question of a form. Raises AdminError."""
    kind, operation = asked.get("resource_type", ""), asked.get("operation", "")
    if kind not in RESOURCES:
        raise bad_value(f"{kind!r} is no type of resource", field="resource_type")
    if operation not in CHECKED[kind]:
        raise bad_value(
            f"{operation or 'no operation'} cannot be done to {RESOURCES[kind]}",
            field="operation",
            remedy=f"choose one of {', '.join(CHECKED[kind])}",
        )
    name = asked.get("resource_name", "").strip()
    if not name and kind != "CLUSTER":
        raise bad_value("the name of the resource is missing", field="resource_name")
    principal = principal_of(asked["principal"])
    return Question(principal, asked.get("host", "").strip(), operation, kind, name)  # type: ignore[arg-type]  # both are checked above


def _check_line(asked: Question) -> str:
    operation = asked.operation.lower().replace("_", "-")
    words = [asked.principal, operation, *resource_words(asked.resource_type, asked.resource_name)]
    return command("acl", "check", *words, *(["--host", asked.host] if asked.host else []))
