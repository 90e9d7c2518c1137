"""Configuration of topics, brokers and the cluster (read side), with ETags."""

from collections.abc import Iterable
from typing import Literal

from fastapi import Request, Response
from pydantic import Field

from controller.admin import configs as admin
from controller.admin import topics
from controller.admin.errors import AdminError
from controller.admin.models import ItemProblem
from controller.rest.problems import RESPONSES
from controller.rest.shapes import (
    PAGE_SIZE_DEFAULT,
    BrokerIdPath,
    Collection,
    ConfigName,
    Ctx,
    Cursor,
    Here,
    Links,
    PageSize,
    Resource,
    TopicName,
    cluster_router,
)

router = cluster_router("Configuration", RESPONSES)


class TopicConfigData(admin.ConfigView, Resource):
    """Setting of a topic."""

    kind: Literal["KafkaTopicConfig"] = "KafkaTopicConfig"
    cluster_id: str
    topic_name: str


class TopicConfigDataList(Collection[TopicConfigData]):
    """Settings of a topic, by name."""

    kind: Literal["KafkaTopicConfigList"] = "KafkaTopicConfigList"


class AllTopicConfigDataList(TopicConfigDataList):
    """Page of topics with their settings."""

    problems: list[ItemProblem] = Field(description="topics whose settings are missing")


class BrokerConfigData(admin.ConfigView, Resource):
    """Setting of a broker."""

    kind: Literal["KafkaBrokerConfig"] = "KafkaBrokerConfig"
    cluster_id: str
    broker_id: int


class BrokerConfigDataList(Collection[BrokerConfigData]):
    """Settings of a broker, by name."""

    kind: Literal["KafkaBrokerConfigList"] = "KafkaBrokerConfigList"


class AllBrokerConfigDataList(BrokerConfigDataList):
    """Settings of all brokers."""

    problems: list[ItemProblem] = Field(description="brokers that did not answer")


class ClusterConfigData(admin.ConfigView, Resource):
    """Setting that holds for all brokers."""

    kind: Literal["KafkaClusterConfig"] = "KafkaClusterConfig"
    cluster_id: str
    config_type: Literal["BROKER"] = "BROKER"


class ClusterConfigDataList(Collection[ClusterConfigData]):
    """Settings that hold for all brokers, by name."""

    kind: Literal["KafkaClusterConfigList"] = "KafkaClusterConfigList"


def topic_config(here: Links, topic: str, view: admin.ConfigView) -> TopicConfigData:
    """Return the answer for one setting of a topic."""
    at = ("topics", topic, "configs", view.name)
    return TopicConfigData(
        **view.model_dump(),
        metadata=here.about(*at, topic=topic, config=view.name),
        cluster_id=here.cluster_id,
        topic_name=topic,
    )


def listed_topic_configs(
    here: Links, topic: str, views: Iterable[admin.ConfigView]
) -> list[dict[str, object]]:
    """Return the same answers as ``topic_config`` as plain values. They are validated together: a
    page has thousands of them.
    """
    base = here.url("topics", topic, "configs")
    name = here.about(topic=topic).resource_name
    return [
        {
            **dict(view),
            "metadata": {
                "self": f"{base}/{view.name}",
                "resource_name": f"{name}/config={view.name}",
            },
            "cluster_id": here.cluster_id,
            "topic_name": topic,
        }
        for view in views
    ]


def broker_config(here: Links, broker_id: int, view: admin.ConfigView) -> BrokerConfigData:
    """Return the answer for one setting of a broker."""
    at = ("brokers", broker_id, "configs", view.name)
    return BrokerConfigData(
        **view.model_dump(),
        metadata=here.about(*at, broker=broker_id, config=view.name),
        cluster_id=here.cluster_id,
        broker_id=broker_id,
    )


def cluster_config(here: Links, view: admin.ConfigView) -> ClusterConfigData:
    """Return the answer for one setting of all brokers."""
    return ClusterConfigData(
        **view.model_dump(),
        metadata=here.about("broker-configs", view.name, broker_config=view.name),
        cluster_id=here.cluster_id,
    )


@router.get("/topics/-/configs", operation_id="listKafkaAllTopicConfigs")
async def all_topic_configs(
    request: Request,
    ctx: Ctx,
    here: Here,
    cursor: Cursor = None,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
) -> AllTopicConfigDataList:
    """Return the settings of all topics; a page has the settings of `page_size` topics."""
    found, _ = await topics.list_topics(ctx, cursor=cursor, limit=page_size)
    answers = await admin.many_topics(ctx, found.keys)
    data: list[dict[str, object]] = []
    problems: list[ItemProblem] = []
    for name in found.keys:
        answer = answers.get(name)
        if isinstance(answer, AdminError):
            problems.append(
                ItemProblem(item=name, error_code=answer.error_code, message=answer.message)
            )
            continue
        data += listed_topic_configs(here, name, answer or ())
    return AllTopicConfigDataList.model_validate(
        {"metadata": here.listing(found.cursor, request), "data": data, "problems": problems}
    )


@router.get("/topics/{topic_name}/configs", operation_id="listKafkaTopicConfigs")
async def list_topic_configs(
    ctx: Ctx, here: Here, response: Response, topic_name: TopicName
) -> TopicConfigDataList:
    """Return the settings of a topic, with their ETag."""
    found = await admin.topic_configs(ctx, topic_name)
    response.headers["etag"] = admin.etag(found)
    data = [topic_config(here, topic_name, one) for one in found]
    return TopicConfigDataList(metadata=here.listing(), data=data)


@router.get("/topics/{topic_name}/configs/{name}", operation_id="getKafkaTopicConfig")
async def get_topic_config(
    ctx: Ctx, here: Here, response: Response, topic_name: TopicName, name: ConfigName
) -> TopicConfigData:
    """Return one setting of a topic, with its ETag."""
    found = await admin.one_config(await admin.topic_configs(ctx, topic_name), name)
    response.headers["etag"] = admin.etag([found])
    return topic_config(here, topic_name, found)


@router.get("/brokers/-/configs", operation_id="listKafkaAllBrokerConfigs")
async def all_broker_configs(ctx: Ctx, here: Here) -> AllBrokerConfigDataList:
    """Return the settings of all brokers; those that are late are problems of their own."""
    answers = await ctx.each(sorted(ctx.image.brokers), lambda one: admin.broker_configs(ctx, one))
    data: list[BrokerConfigData] = []
    problems: list[ItemProblem] = []
    for broker_id, answer in answers.items():
        if isinstance(answer, AdminError):
            problems.append(
                ItemProblem(
                    item=f"broker {broker_id}",
                    error_code=answer.error_code,
                    message=answer.message,
                )
            )
            continue
        data += [broker_config(here, broker_id, one) for one in answer]
    return AllBrokerConfigDataList(metadata=here.listing(), data=data, problems=problems)


@router.get("/brokers/{broker_id}/configs", operation_id="listKafkaBrokerConfigs")
async def list_broker_configs(
    ctx: Ctx, here: Here, response: Response, broker_id: BrokerIdPath
) -> BrokerConfigDataList:
    """Return the settings of a broker, with their ETag."""
    found = await admin.broker_configs(ctx, broker_id)
    response.headers["etag"] = admin.etag(found)
    data = [broker_config(here, broker_id, one) for one in found]
    return BrokerConfigDataList(metadata=here.listing(), data=data)


@router.get("/brokers/{broker_id}/configs/{name}", operation_id="getKafkaBrokerConfig")
async def get_broker_config(
    ctx: Ctx, here: Here, response: Response, broker_id: BrokerIdPath, name: ConfigName
) -> BrokerConfigData:
    """Return one setting of a broker, with its ETag."""
    found = await admin.one_config(await admin.broker_configs(ctx, broker_id), name)
    response.headers["etag"] = admin.etag([found])
    return broker_config(here, broker_id, found)


@router.get("/broker-configs", operation_id="listKafkaClusterConfigs")
async def list_cluster_configs(ctx: Ctx, here: Here, response: Response) -> ClusterConfigDataList:
    """Return the settings that hold for all brokers, with their ETag."""
    found = await admin.cluster_configs(ctx)
    response.headers["etag"] = admin.etag(found)
    data = [cluster_config(here, one) for one in found]
    return ClusterConfigDataList(metadata=here.listing(), data=data)


@router.get("/broker-configs/{name}", operation_id="getKafkaClusterConfig")
async def get_cluster_config(
    ctx: Ctx, here: Here, response: Response, name: ConfigName
) -> ClusterConfigData:
    """Return one setting that holds for all brokers, with its ETag."""
    found = await admin.one_config(await admin.cluster_configs(ctx), name)
    response.headers["etag"] = admin.etag([found])
    return cluster_config(here, found)
