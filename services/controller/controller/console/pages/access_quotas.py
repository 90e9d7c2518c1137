"""Access: quotas of clients; they are set after a difference was shown, and removed."""

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response
from tidemark.model.quotas import QuotaEntity

from controller.admin import quotas
from controller.admin.errors import AdminError, bad_value
from controller.admin.quotas import EntityType, QuotaChange, QuotaView
from controller.console.confirmed import Confirmed
from controller.console.forms import Form
from controller.console.names import command
from controller.console.pages.access import ROOM
from controller.console.tables import Column, Table
from controller.console.visit import NotFoundError, Visit

KINDS: Final[Mapping[str, tuple[EntityType, ...]]] = {
    "user": ("user",),
    "client-id": ("client-id",),
    "both": ("user", "client-id"),
    "ip": ("ip",),
}
"""Types of the parts of an entity, by the choice in the form."""
_KIND_TITLES: Final = {
    "user": "a user",
    "client-id": "a client id",
    "both": "a client id of a user",
    "ip": "an IP address",
}
_TITLES: Final = {
    "producer_byte_rate": "From producers",
    "consumer_byte_rate": "To consumers",
    "request_percentage": "Request time",
    "controller_mutation_rate": "Partitions changed",
    "connection_creation_rate": "New connections",
}
_OF_ADDRESSES: Final = "connection_creation_rate"
_ROOM: Final = ("/access/quotas", "Quotas")


def _value(key: str) -> Column:
    return Column(key, _TITLES[key], lambda row: row.values.get(key), is_number=True)


QUOTAS: Final[Table[QuotaView]] = Table(
    columns=(
        Column("entity", "Of", lambda row: quotas.sort_key(quotas.entity_of(row.entity))),
        *map(_value, quotas.KEYS),
        Column("actions", ""),
    ),
    text_of=lambda row: f"{quotas.words(quotas.entity_of(row.entity))} {' '.join(row.values)}",
    sort="entity",
    noun="entity",
    nouns="entities",
    label="Quotas",
)


async def show_all(visit: Visit) -> Response:
    """Show the quotas of all entities."""
    rows = quotas.listed(visit.admin, QuotaEntity())
    return visit.page(
        "access_quotas.html",
        quotas=visit.table(QUOTAS, rows),
        words=_words,
        address=_address,
        plain=plain,
    )


def plain(value: float) -> str:
    """Return a number without an exponent."""
    return str(int(value)) if value.is_integer() else repr(value)


def _words(row: QuotaView) -> str:
    return quotas.words(quotas.entity_of(row.entity))


def _address(row: QuotaView) -> dict[str, str]:
    """Return the parameters that name an entity in a URL."""
    kind = next(one for one, types in KINDS.items() if set(types) == set(row.entity))
    return {"kind": kind} | {one: name for one, name in row.entity.items() if name is not None}


# -- setting


async def show_set(visit: Visit) -> Response:
    """Show the form of an entity's quotas, with those that it has."""
    values = dict(visit.query)
    if "kind" in values:
        present = quotas.values_of(visit.admin, _entity(values))
        values |= {key: plain(value) for key, value in present.items()}
    return _set_page(visit, values)


async def set_values(visit: Visit, form: Form) -> Response:
    """Show the quotas before and after, or set them: the form's button decides."""
    values, is_dry = form.as_mapping(), not form.checked("execute")
    try:
        entity = _entity(values)
        before = quotas.values_of(visit.admin, entity)
        change = QuotaChange(entity=quotas.shown(entity), values=_numbers(entity, values, before))
        after = await quotas.alter(visit.admin, change, dry_run=is_dry)
    except AdminError as problem:
        return _set_page(visit, values, problem=problem)
    if not is_dry:
        return visit.go_on("/access/quotas", done="quotas-set")
    keys = [key for key in quotas.KEYS if key in before or key in after.values]
    moves = [(key, before.get(key), after.values.get(key)) for key in keys]
    return _set_page(visit, values, entity=entity, moves=moves)


def _entity(values: Mapping[str, str]) -> QuotaEntity:
    """Return the entity of a form or a URL; an empty name is the default. Raises AdminError."""
    types = KINDS.get(values.get("kind", ""))
    if types is None:
        raise bad_value("say whose quotas they are", field="kind")
    return quotas.entity_of({one: values.get(one, "").strip() or None for one in types})


def _numbers(
    entity: QuotaEntity, values: Mapping[str, str], before: Mapping[str, float]
) -> dict[str, float | None]:
    """Return the values of a form; a quota whose field is empty is removed. Raises AdminError."""
    found: dict[str, float | None] = {}
    for key in quotas.KEYS:
        text = values.get(key, "").strip()
        if (key == _OF_ADDRESSES) != (entity.ip is not None):
            continue
        try:
            if text:
                found[key] = float(text)
            elif key in before:
                found[key] = None
        except ValueError:
            raise bad_value(f"{text!r} is not a number", field=key) from None
    if not found:
        raise bad_value("no quota is given", field="values", remedy="fill in one of the numbers")
    return found


def _set_page(
    visit: Visit,
    values: Mapping[str, str],
    *,
    entity: QuotaEntity | None = None,
    moves: list[tuple[str, float | None, float | None]] | None = None,
    problem: AdminError | None = None,
) -> Response:
    return visit.page(
        "access_set_quotas.html",
        status=problem.status if problem else 200,
        values=values,
        kinds=_KIND_TITLES,
        keys=quotas.KEYS,
        of_addresses=_OF_ADDRESSES,
        plain=plain,
        entity="" if entity is None else quotas.words(entity),
        moves=moves or [],
        problem=problem,
        line=_set_line(entity, moves or []),
    )


def _set_line(
    entity: QuotaEntity | None, moves: list[tuple[str, float | None, float | None]]
) -> str:
    if entity is None:
        return command("quota", "set", "--user", "NAME", "producer_byte_rate=1048576")
    after = [f"{key}={plain(value)}" for key, _, value in moves if value is not None]
    return command("quota", "set", *options(entity), *after)


def options(entity: QuotaEntity) -> list[str]:
    """Return an entity as options of a command."""
    words: list[str] = []
    for one, name in entity.parts.items():
        words += [f"--{one}", name] if name else [f"--{one}-default"]
    return words


# -- removing


async def show_remove(visit: Visit) -> Response:
    """Ask before the quotas of an entity are removed."""
    return _removal(*_present(visit)).ask(visit)


async def remove(visit: Visit, form: Form) -> Response:
    """Remove all quotas of the entity that the URL names."""
    entity, present = _present(visit)

    async def change() -> None:
        await quotas.remove(visit.admin, entity)

    return await _removal(entity, present).carry_out(
        visit, form, change, then="/access/quotas", done="quotas-removed"
    )


def _present(visit: Visit) -> tuple[QuotaEntity, Mapping[str, float]]:
    entity = _entity(visit.query)
    present = quotas.values_of(visit.admin, entity)
    if not present:
        raise NotFoundError(f"{quotas.words(entity)} has no quotas, or no longer.")
    return entity, present


def _removal(entity: QuotaEntity, present: Mapping[str, float]) -> Confirmed:
    return Confirmed(
        title="Remove the quotas",
        subject=quotas.words(entity),
        mismatch="What was typed does not name this entity.",
        loses=", ".join(f"{key} {plain(value)}" for key, value in sorted(present.items()))
        + ". Quotas that are less specific hold from then on, or none",
        crumbs=[ROOM, _ROOM],
        back="/access/quotas",
        line=command("quota", "remove", *options(entity), "--yes"),
    )
