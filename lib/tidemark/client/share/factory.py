"""Consumers by the type of their group (``group.type`` of KIP-932's first versions)."""

from collections.abc import Sequence
from typing import Any, Final, Literal, overload

from tidemark.client.consumer.consumer import Consumer
from tidemark.client.errors import ClientConfigError
from tidemark.client.share.share_consumer import ShareConsumer
from tidemark.model.errors import ErrorCode

GroupType = Literal["classic", "consumer", "share"]
_TYPES: Final = ("classic", "consumer", "share")


def is_share(group_type: str) -> bool:
    """True for a share group. Raises ClientConfigError for a type that does not exist."""
    if group_type not in _TYPES:
        allowed = ", ".join(map(repr, _TYPES))
        raise ClientConfigError(
            ErrorCode.INVALID_CONFIG, f"group_type is {group_type!r}; it must be one of {allowed}"
        )
    return group_type == "share"


@overload
def make_consumer(
    bootstrap_servers: str | Sequence[str], *, group_type: Literal["share"], **settings: Any
) -> ShareConsumer: ...


@overload
def make_consumer(
    bootstrap_servers: str | Sequence[str],
    *,
    group_type: Literal["classic", "consumer"] = "consumer",
    **settings: Any,
) -> Consumer: ...


def make_consumer(
    bootstrap_servers: str | Sequence[str], *, group_type: GroupType = "consumer", **settings: Any
) -> Consumer | ShareConsumer:
    """Make a consumer of a group of this type: a ShareConsumer for ``share``, else a Consumer.

    ``settings`` are those of the class. Raises ClientConfigError.
    """
    if is_share(group_type):
        return ShareConsumer(bootstrap_servers, **settings)
    return Consumer(bootstrap_servers, **settings)
