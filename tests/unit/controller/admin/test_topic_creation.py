"""Who may create topics by REST: with Create on the topic or on the cluster, as in Kafka."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from controller.admin.errors import AdminError
from controller.admin.topic_changes import NewTopicInput
from controller.rest import topic_changes
from controller.rest.shapes import Links
from controller.rest.topics import TopicData
from fastapi import Response
from tidemark.client.admin.types import NewTopic
from tidemark.model.authorization import CLUSTER, Operation, Resource, topic_resource
from tidemark.model.metadata import ClusterImage
from unit.controller.admin.contexts import a_context
from unit.controller.worlds import a_cluster, a_topic


class Cluster:
    """A cluster without topics, and the client of its brokers, which creates them."""

    def __init__(self) -> None:
        self.image = a_cluster().image

    def __call__(self) -> ClusterImage:
        return self.image

    async def until(self, shows: Callable[[ClusterImage], bool], _: float) -> None:
        assert shows(self.image)

    async def create_topics(self, topics: list[NewTopic], *, validate_only: bool) -> dict[str, Any]:
        assert not validate_only
        self.image = a_cluster(*(a_topic(one.name, (1,)) for one in topics)).image
        return {one.name: _created(self.image, one.name) for one in topics}


def _created(image: ClusterImage, name: str) -> Any:
    class Created:
        topic_id = image.topics[name].topic_id
        partitions = replication_factor = 1

    return Created


def create(cluster: Cluster, allowed: Resource) -> TopicData:
    ctx = a_context(cluster.image, {allowed: (Operation.CREATE,)}, cluster)
    ctx.shared.image = cast("Any", cluster)
    here = Links("http://localhost", "c", "http://localhost/v3/clusters/c/topics")
    wanted = NewTopicInput(topic_name="orders")
    return asyncio.run(topic_changes.create_topic(ctx, here, Response(), wanted))


@pytest.mark.parametrize("allowed", [topic_resource("orders"), CLUSTER])
def test_who_may_create_is_answered_with_the_topic(allowed: Resource) -> None:
    made = create(Cluster(), allowed)
    assert (made.topic_name, made.partitions_count) == ("orders", 1)


def test_who_may_create_another_topic_is_refused() -> None:
    cluster = Cluster()
    with pytest.raises(AdminError, match="may not CREATE orders") as refused:
        create(cluster, topic_resource("other"))
    assert (refused.value.status, list(cluster.image.topics)) == (403, [])
