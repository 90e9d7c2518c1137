"""Brokers, and one broker: registration, load, log directories, configuration."""

from typing import Final

from starlette.responses import Response

from controller.admin import brokers, configs
from controller.admin.brokers import BrokerView, ReplicaRow
from controller.console.pages.config_table import CONFIGS
from controller.console.tables import Column, Table
from controller.console.visit import NotFoundError, Visit

REPLICAS: Final[Table[ReplicaRow]] = Table(
    columns=(
        Column("partition", "Partition", lambda row: (row.topic_name, row.partition_id)),
        Column("leader", "Leads", lambda row: row.is_leader),
        Column("sync", "In sync", lambda row: row.is_in_sync),
    ),
    text_of=lambda row: f"{row.topic_name} {row.topic_name}-{row.partition_id}",
    sort="partition",
    is_ordered=True,
    noun="replica",
)
BROKERS: Final[Table[BrokerView]] = Table(
    columns=(
        Column("id", "Broker", lambda row: row.broker_id),
        Column("state", "State", lambda row: row.state),
        Column("address", "Address for clients", lambda row: (row.host or "", row.port or 0)),
        Column("rack", "Rack", lambda row: row.rack or ""),
        Column("node", "Node", lambda row: row.node),
        Column("leaders", "Leads", lambda row: row.leaders, is_number=True),
        Column("replicas", "Replicas", lambda row: row.replicas, is_number=True),
        Column("out", "Not in sync", lambda row: row.replicas - row.in_sync, is_number=True),
    ),
    text_of=lambda row: f"{row.broker_id} {row.state} {row.host} {row.rack or ''} {row.node}",
    sort="id",
    noun="broker",
)


async def show_all(visit: Visit) -> Response:
    """Show all brokers."""
    listed = await brokers.list_brokers(visit.admin)
    return visit.page("brokers.html", brokers=visit.table(BROKERS, listed), count=len(listed))


async def show(visit: Visit, broker_id: str) -> Response:
    """Show one broker with its replicas."""
    broker = await brokers.get_broker(visit.admin, _number(broker_id))
    replicas = brokers.replica_rows(visit.admin, broker.broker_id)
    return visit.page("broker.html", broker=broker, replicas=visit.table(REPLICAS, replicas))


async def disks(visit: Visit, broker_id: str) -> Response:
    """Show the log directories of a broker, as a part of its page."""
    number = _number(broker_id)
    answer = await brokers.log_dirs(visit.admin, number)
    return visit.page("parts/log_dirs.html", answer=answer)


async def configuration(visit: Visit, broker_id: str) -> Response:
    """Show the configuration of a broker."""
    broker = await brokers.get_broker(visit.admin, _number(broker_id))
    entries = await configs.broker_configs(visit.admin, broker.broker_id)
    return visit.page("broker_configs.html", broker=broker, configs=visit.table(CONFIGS, entries))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 11):
        raise NotFoundError(f"{text!r} is not the number of a broker")
    return int(text)
