"""Forms that change topics: create, clone, configure, more partitions, delete records, delete."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from starlette.responses import Response
from tidemark.model.authorization import Operation, topic_resource

from controller.admin import brokers, configs, topic_changes, topics
from controller.admin.errors import AdminError, bad_value
from controller.admin.topic_changes import ConfigChange, NewTopicInput, TopicConfigInput
from controller.console.forms import Form
from controller.console.names import command, path
from controller.console.visit import Visit


class Common(NamedTuple):
    """A setting that the form of a new topic offers, with a hint."""

    name: str
    title: str
    hint: str


COMMON: Final = (
    Common("cleanup.policy", "Clean-up", "delete old records, or keep the last one of each key"),
    Common("retention.ms", "Retention, ms", "time for which records are kept; -1 for ever"),
    Common("retention.bytes", "Retention, bytes", "size of a partition; -1 for no bound"),
    Common("min.insync.replicas", "min.insync.replicas", "replicas that acks=all needs"),
    Common("max.message.bytes", "Largest batch, bytes", "compressed size of a batch"),
)


# -- create


async def show_create(visit: Visit) -> Response:
    """Show the form of a new topic, filled from another one if ?clone= names it."""
    values: dict[str, str] = {}
    clone = visit.query.get("clone", "")
    if clone:
        topic = visit.admin.topic(clone)
        visit.admin.require(Operation.DESCRIBE_CONFIGS, topic_resource(clone))
        values = {"name": f"{clone}-copy", "partitions": str(len(topic.partitions))}
        values["replicas"] = str(max(len(one.replicas) for one in topic.partitions))
        values["more"] = "\n".join(
            f"{key}={value}" for key, value in sorted(topic.configs.items()) if key not in _NAMES
        )
        values |= {key: value for key, value in topic.configs.items() if key in _NAMES}
    return await _create_page(visit, values)


_NAMES: Final = frozenset(one.name for one in COMMON)


async def create(visit: Visit, form: Form) -> Response:
    """Create a topic, or check only."""
    values = form.as_mapping()
    try:
        new = _new_topic(form)
        made = await topic_changes.create(visit.admin, new)
    except AdminError as problem:
        return await _create_page(visit, values, problem=problem)
    except ValueError as problem:
        return await _create_page(visit, values, problem=bad_value(_first_line(problem)))
    if new.validate_only:
        words = (
            f"The cluster would create it with {made.partitions_count} partitions of"
            f" {made.replication_factor} replicas."
        )
        return await _create_page(visit, values, checked=words)
    return visit.go_on(path("topics", made.topic_name), done="topic-created")


def _first_line(problem: ValueError) -> str:
    lines = str(problem).splitlines()
    return ": ".join(line.strip() for line in lines[1:3]) or "a value is out of bounds"


def _new_topic(form: Form) -> NewTopicInput:
    entries = {name: form.text(name).strip() for name in _NAMES if form.text(name).strip()}
    entries |= _pairs(form.text("more"))
    return NewTopicInput(
        topic_name=form.text("name").strip(),
        partitions_count=form.integer("partitions"),
        replication_factor=form.integer("replicas"),
        configs=[TopicConfigInput(name=key, value=value) for key, value in entries.items()],
        validate_only=form.checked("check"),
    )


def _pairs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip():
            name, separator, value = line.partition("=")
            if not separator:
                raise bad_value(f"{line.strip()!r} is not NAME=VALUE", field="more")
            found[name.strip()] = value.strip()
    return found


async def _create_page(
    visit: Visit,
    values: Mapping[str, str],
    *,
    problem: AdminError | None = None,
    checked: str = "",
) -> Response:
    try:
        defaults = {one.name: one.value for one in await configs.cluster_configs(visit.admin)}
    except AdminError:
        defaults = {}  # the form works without the hints
    return visit.page(
        "create_topic.html",
        status=problem.status if problem else 200,
        values=values,
        problem=problem,
        checked=checked,
        common=COMMON,
        defaults=defaults,
        live=sum(not one.fenced for one in visit.image.brokers.values()),
        line=_create_line(values),
    )


def _create_line(values: Mapping[str, str]) -> str:
    words: list[object] = ["topic", "create", values.get("name") or "NAME"]
    if values.get("partitions"):
        words += ["--partitions", values["partitions"]]
    if values.get("replicas"):
        words += ["--replication-factor", values["replicas"]]
    settings = [f"{name}={values[name]}" for name in sorted(_NAMES) if values.get(name)]
    settings += [line.strip() for line in values.get("more", "").splitlines() if line.strip()]
    for setting in settings:
        words += ["--config", setting]
    return command(*words)


# -- configuration


async def show_config(visit: Visit, name: str) -> Response:
    """Show the form of one setting of a topic."""
    return await _config_page(visit, "topic", name)


async def config(visit: Visit, form: Form, name: str) -> Response:
    """Change one setting of a topic, or restore its default."""
    return await _config(visit, form, "topic", name)


async def show_broker_config(visit: Visit, broker_id: str) -> Response:
    """Show the form of one setting of a broker."""
    return await _config_page(visit, "broker", broker_id)


async def broker_config(visit: Visit, form: Form, broker_id: str) -> Response:
    """Change one setting of a broker, or restore its default."""
    return await _config(visit, form, "broker", broker_id)


async def _config(visit: Visit, form: Form, kind: str, owner: str) -> Response:
    name = form.text("name")
    if form.checked("default"):
        change = ConfigChange(name=name, operation="DELETE")
    else:
        change = ConfigChange(name=name, value=form.text("value"))
    try:
        if kind == "topic":
            await topic_changes.alter_topic(visit.admin, owner, [change])
        else:
            await topic_changes.alter_broker(visit.admin, int(owner), [change])
    except AdminError as problem:
        return await _config_page(visit, kind, owner, name=name, problem=problem)
    return visit.go_on(path(f"{kind}s", owner, "configs"), done="configs-changed", q=name)


async def _config_page(
    visit: Visit,
    kind: str,
    owner: str,
    *,
    name: str = "",
    problem: AdminError | None = None,
) -> Response:
    name = name or visit.query.get("name", "")
    if kind == "topic":
        entries = await configs.topic_configs(visit.admin, owner)
        line = command("topic", "alter", owner, "--config", f"{name}=VALUE")
    else:
        if not owner.isdigit():
            raise bad_value(f"{owner!r} is not the number of a broker")
        broker = await brokers.get_broker(visit.admin, int(owner))
        entries = await configs.broker_configs(visit.admin, broker.broker_id)
        line = ""
    return visit.page(
        "config_form.html",
        status=problem.status if problem else 200,
        kind=kind,
        owner=owner,
        setting=await configs.one_config(entries, name),
        problem=problem,
        line=line,
    )


# -- partitions, records, deletion


async def show_manage(visit: Visit, name: str) -> Response:
    """Show the changes of a topic that are not settings."""
    return await _manage_page(visit, name)


async def add_partitions(visit: Visit, form: Form, name: str) -> Response:
    """Give a topic more partitions."""
    try:
        count = form.integer("count", bits=32)
        if count is None:
            raise bad_value("say how many partitions the topic shall have", field="count")
        await topic_changes.set_partitions(visit.admin, name, count)
    except AdminError as problem:
        return await _manage_page(visit, name, problem=problem)
    return visit.go_on(path("topics", name), done="partitions-added")


async def purge(visit: Visit, form: Form, name: str) -> Response:
    """Delete records below an offset, or all of them; a first step shows what is lost."""
    try:
        before = _before(visit, form, name)
        if not form.checked("execute"):
            rows = await topic_changes.delete_records(visit.admin, name, before, dry_run=True)
            starts = await topics.offsets(visit.admin, [(name, number) for number in before])
            lost = [
                (row.partition_id, starts[name, row.partition_id].earliest_offset or 0, row)
                for row in rows
            ]
            return await _manage_page(visit, name, values=form.as_mapping(), lost=lost)
        if form.text("confirm") != name:
            raise bad_value("the name that was typed is not the topic's", field="confirm")
        await topic_changes.delete_records(visit.admin, name, before)
    except AdminError as problem:
        return await _manage_page(visit, name, values=form.as_mapping(), problem=problem)
    return visit.go_on(path("topics", name), done="records-deleted")


def _before(visit: Visit, form: Form, name: str) -> dict[int, int]:
    partition, offset = form.integer("partition"), form.integer("before")
    count = len(visit.admin.topic(name).partitions)
    numbers = range(count) if partition is None else [partition]
    return dict.fromkeys(numbers, -1 if offset is None else offset)


async def delete(visit: Visit, form: Form, name: str) -> Response:
    """Delete a topic whose name has been typed."""
    try:
        if form.text("confirm") != name:
            raise bad_value("the name that was typed is not the topic's", field="confirm")
        await topic_changes.delete(visit.admin, name)
    except AdminError as problem:
        return await _manage_page(visit, name, problem=problem)
    return visit.go_on("/topics", done="topic-deleted")


async def _manage_page(
    visit: Visit,
    name: str,
    *,
    problem: AdminError | None = None,
    values: Mapping[str, str] | None = None,
    lost: Sequence[tuple[int, int, topic_changes.DeletedRecords]] = (),
) -> Response:
    return visit.page(
        "manage.html",
        status=problem.status if problem else 200,
        topic=await topics.get_topic(visit.admin, name),
        problem=problem,
        values=values or {},
        lost=lost,
    )
