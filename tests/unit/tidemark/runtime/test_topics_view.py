from tidemark.model.ids import ControllerEpoch, TopicId
from tidemark.model.metadata import ClusterImage, FeedPosition, TopicImage
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.topics_view import TopicsView

ORDERS = TopicImage("orders", TopicId(b"o" * 16), {}, ())


def test_topics_are_found_by_name_and_by_id() -> None:
    metadata = MetadataCache()
    view = TopicsView(metadata)
    before = view.position
    assert view.topic_id_of("orders") is None
    metadata.take(
        ClusterImage(
            position=FeedPosition(ControllerEpoch(1), 0),
            topics={"orders": ORDERS},
            topics_by_id={ORDERS.topic_id: ORDERS},
        )
    )
    assert view.position > before
    assert (view.topic_id_of("orders"), view.name_of(ORDERS.topic_id)) == (b"o" * 16, "orders")
    assert (view.partition_count("orders"), view.partition_count("other")) == (0, 0)
    assert list(view.names()) == ["orders"]
