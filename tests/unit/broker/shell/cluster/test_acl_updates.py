from dataclasses import replace

from broker.shell.cluster.acl_updates import follow_acls
from broker.shell.subscribers import AUTHORIZER
from tidemark.model.acls import AclEntry, Acls, Permission, ResourcePattern
from tidemark.model.authorization import Operation, Requester, ResourceType, topic_resource
from tidemark.model.ids import ControllerEpoch
from tidemark.model.metadata import ClusterImage, FeedPosition
from tidemark.model.metadata_change import Kind, MetadataChange
from tidemark.protocol.acl_authorizer import AclAuthorizer, AclPolicy
from tidemark.runtime.metadata_cache import MetadataCache

ALICE = Requester("User:alice", "10.0.0.1")
READ = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)


def acls_of(*topics: str) -> Acls:
    return {ResourcePattern(ResourceType.TOPIC, name): frozenset({READ}) for name in topics}


def after(image: ClusterImage, acls: Acls) -> ClusterImage:
    later = FeedPosition(ControllerEpoch(1), image.position.version + 1)
    return replace(image, acls=acls, position=later)


def test_each_image_replaces_the_acls_of_the_one_before() -> None:
    authorizer = AclAuthorizer(AclPolicy())
    metadata = MetadataCache(first=(AUTHORIZER,))
    follow_acls(metadata, authorizer)

    def may(topic: str) -> bool:
        return authorizer.authorize(ALICE, Operation.READ, topic_resource(topic))

    assert not may("a")
    metadata.take(after(metadata.image, acls_of("a", *map(str, range(5_000)))))
    assert (may("a"), may("4999"), may("b")) == (True, True, False)
    metadata.take(after(metadata.image, acls_of("b")))
    assert (may("a"), may("4999"), may("b")) == (False, False, True)


def test_they_are_enforced_when_the_image_is_shown() -> None:
    authorizer = AclAuthorizer(AclPolicy())
    metadata = MetadataCache(first=(AUTHORIZER,), then=("reader",))
    follow_acls(metadata, authorizer)
    seen: list[bool] = []

    def look(change: MetadataChange) -> None:
        seen.append(authorizer.authorize(ALICE, Operation.READ, topic_resource("a")))

    metadata.subscribe("reader", Kind.ACLS, look)
    metadata.take(after(metadata.image, acls_of("a")))
    assert seen == [True]
