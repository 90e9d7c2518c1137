"""Load: throughput of the brokers, as it was measured last, and the lag of groups."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from pydantic import Field
from tidemark.client.admin.broker_load import GroupLags, list_group_lags
from tidemark.model.authorization import Operation

from controller.admin.context import AdminContext
from controller.admin.errors import AdminError
from controller.admin.models import ItemProblem, Model
from controller.admin.traffic_history import Rates, sum_of
from controller.admin.traffic_log import TrafficLog

LAGS_MAX: Final = 10
"""Groups that the overview names."""
_LAG_TIMEOUT_MS: Final = 5_000
"""Longer than a broker waits for other brokers, which have the ends of some partitions."""
_NOT_YET: Final = "measured from its second answer on"


class RatesView(Model):
    """Traffic a second."""

    bytes_in: float = Field(description="appended by producers", examples=[1_048_576.0])
    bytes_out: float = Field(description="of records, sent to consumers", examples=[2_097_152.0])
    records_in: float = Field(description="appended by producers", examples=[1_200.5])
    replication_bytes_in: float = Field(description="fetched from leaders", examples=[1_048_576.0])
    produce_requests: float = Field(description="by partition", examples=[40.0])
    fetch_requests: float = Field(description="by partition", examples=[80.0])


class BrokerTraffic(Model):
    """Throughput of one broker; null, with the reason, while it is not known."""

    broker_id: int = Field(examples=[1])
    rates: RatesView | None
    open_transaction_partitions: int | None = Field(
        description="partitions that it leads with an open transaction", examples=[0]
    )
    problem: str | None = Field(examples=[None])


class TrafficPoint(Model):
    """Sum of the rates of all brokers at one moment."""

    at_ms: int = Field(description="ms since 1970", examples=[1_790_000_000_000])
    rates: RatesView
    brokers: int = Field(description="brokers in the sum", examples=[3])


class Traffic(Model):
    """Throughput of the cluster. Records that brokers send are not counted: brokers send slices of
    files, without reading them.
    """

    interval_ms: int = Field(
        description="interval of the measurements (rest.traffic.interval.ms); 0: switched off",
        examples=[5_000],
    )
    age_ms: int | None = Field(description="age of the last measurement", examples=[1_200])
    total: RatesView | None = Field(description="sum of the known rates; null if none is known")
    open_transaction_partitions: int | None = Field(
        description="sum of the known counts", examples=[0]
    )
    brokers: list[BrokerTraffic]
    past: list[TrafficPoint] = Field(description="recent past, oldest first")


class GroupLagView(Model):
    """Lag of one group: the sum over the partitions in which it has committed an offset."""

    group_id: str = Field(examples=["billing"])
    lag: int = Field(description="records; sum of the known lags", examples=[30])
    unknown: int = Field(description="partitions whose lag is not known", examples=[0])
    members: int = Field(examples=[2])


class LagView(Model):
    """Lag of all consumer groups, from the brokers that coordinate them."""

    groups_count: int = Field(examples=[3])
    lag: int | None = Field(description="records; sum of the known lags", examples=[30])
    unknown: int = Field(description="positions whose lag is not known", examples=[0])
    age_ms: int | None = Field(description="age of the oldest figure", examples=[4_000])
    groups: list[GroupLagView] = Field(description="those with the largest lags")
    problems: list[ItemProblem] = Field(description="brokers whose groups are missing")


def traffic(ctx: AdminContext) -> Traffic:
    """Return the throughput, as it was measured last. Raises AdminError without metadata."""
    ctx.require(Operation.DESCRIBE)
    log = ctx.shared.traffic
    each = [_of_broker(log, broker_id) for broker_id in sorted(ctx.image.brokers)]
    found = [log.history.rates(one.broker_id) for one in each]
    known = [rates for rates in found if rates is not None]
    held = [
        one.open_transaction_partitions
        for one in each
        if one.open_transaction_partitions is not None
    ]
    return Traffic(
        interval_ms=log.interval_ms,
        age_ms=log.age_ms,
        total=_view(sum_of(known)) if known else None,
        open_transaction_partitions=sum(held) if held else None,
        brokers=each,
        past=[
            TrafficPoint(at_ms=one.at_ms, rates=_view(one.rates), brokers=one.brokers)
            for one in log.history.points
        ],
    )


def _of_broker(log: TrafficLog, broker_id: int) -> BrokerTraffic:
    rates, latest = log.history.rates(broker_id), log.history.latest(broker_id)
    problem = None
    if not log.interval_ms:
        problem = "switched off (rest.traffic.interval.ms)"
    elif rates is None:
        missing = "it is fenced, or has not been asked yet" if latest is None else _NOT_YET
        problem = log.problems.get(broker_id, missing)
    return BrokerTraffic(
        broker_id=broker_id,
        rates=None if rates is None else _view(rates),
        open_transaction_partitions=None if latest is None else latest.open_transaction_partitions,
        problem=problem,
    )


def _view(rates: Rates) -> RatesView:
    return RatesView(**{name: round(value, 3) for name, value in rates._asdict().items()})


async def group_lags(ctx: AdminContext, count_max: int = LAGS_MAX) -> LagView:
    """Return the lag of all groups, and those with the largest. Figures are computed by the
    coordinators of the groups, which keep them for metrics.group.lag.cache.ms.
    """
    ctx.require(Operation.DESCRIBE)

    ask = partial(list_group_lags, count_max=LAGS_MAX)

    async def of_broker(broker_id: int) -> GroupLags:
        return await ctx.brokers.ask_grpc(broker_id, ask, timeout_ms=_LAG_TIMEOUT_MS)

    ids = [broker.broker_id for broker in ctx.brokers.live()]
    found = await ctx.each(ids, lambda one: ctx.cached("lags", one, lambda: of_broker(one)))
    answers: list[GroupLags] = []
    ages: list[int] = []
    problems: list[ItemProblem] = []
    for broker_id, each in found.items():
        reason = each.message if isinstance(each, AdminError) else each.problem
        if not isinstance(each, AdminError) and each.value is not None:
            answers.append(each.value)
            ages.append((each.age_ms or 0) + each.value.age_ms)
            if not each.value.is_enabled:
                reason = "metrics.group.lag.enable is off"
        if reason:
            item = f"broker {broker_id}"
            problems.append(ItemProblem(item=item, error_code=50003, message=reason))
    return _lag_view(answers, ages, problems, count_max)


def _lag_view(
    answers: Sequence[GroupLags],
    ages: Sequence[int],
    problems: list[ItemProblem],
    count_max: int,
) -> LagView:
    groups = [one for answer in answers for one in answer.groups]
    groups.sort(key=lambda one: (-one.lag, one.group_id))
    return LagView(
        groups_count=sum(answer.groups_total for answer in answers),
        lag=sum(answer.lag_total for answer in answers) if answers else None,
        unknown=sum(answer.unknown_total for answer in answers),
        age_ms=max(ages, default=None),
        groups=[GroupLagView(**one._asdict()) for one in groups[:count_max]],
        problems=problems,
    )
