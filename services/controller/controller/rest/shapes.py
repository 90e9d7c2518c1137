"""Shapes of answers: resources and collections with links, as in Confluent's REST v3."""

from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import quote, unquote, urlencode

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from controller.admin.context import AdminContext
from controller.admin.errors import not_found
from controller.admin.paging import PAGE_DEFAULT, PAGE_MAX
from controller.admin.service import AdminService
from controller.login.authentication import requester_of

NAME_CHARS_MAX = 3 * 255
"""Characters of a name in a path, percent-encoded."""


class Shape(BaseModel):
    """Base of the shapes."""

    model_config = ConfigDict(frozen=True)


class Metadata(Shape):
    """Links of one resource."""

    self: str = Field(examples=["http://127.0.0.1:8080/v3/clusters/c1"])
    resource_name: str | None = Field(default=None, examples=["crn:///kafka=c1"])


class CollectionMetadata(Shape):
    """Links of a collection. ``next`` is the next page; null on the last one."""

    self: str = Field(examples=["http://127.0.0.1:8080/v3/clusters"])
    next: str | None = Field(default=None, examples=[None])


class Relationship(Shape):
    """Link to a related resource or collection."""

    related: str = Field(examples=["http://127.0.0.1:8080/v3/clusters/c1/topics"])


class Resource(Shape):
    """Base of all resources."""

    kind: str
    metadata: Metadata


Data = TypeVar("Data", bound=BaseModel)


class Collection(Shape, Generic[Data]):
    """Page of resources. ``total`` counts all pages; ``problems`` are items that are missing."""

    kind: str
    metadata: CollectionMetadata
    data: list[Data]


class ErrorData(Shape):
    """Answer to a request that failed."""

    error_code: int = Field(examples=[40403])
    message: str = Field(examples=["this cluster does not have topic 'orders'"])
    field: str | None = Field(
        default=None, description="part of the request that caused it", examples=["topic_name"]
    )
    remedy: str | None = Field(default=None, description="next step")


class Links:
    """Builder of links within one cluster, for one request."""

    def __init__(self, base: str, cluster_id: str, own: str) -> None:
        self.base = base
        self.cluster_id = cluster_id
        self.own = own
        """URL of the request."""

    def url(self, *segments: object) -> str:
        """Return the URL of a path within the cluster. A segment that begins with ``:`` is a verb
        of the one before.
        """
        path = ""
        for segment in segments:
            text = str(segment)
            path += quote(text, safe=":") if text.startswith(":") else "/" + quote(text, safe="-")
        return f"{self.base}/v3/clusters/{quote(self.cluster_id, safe='')}{path}"

    def with_query(self, *segments: object, **values: str | list[str]) -> str:
        """Return the URL of a path within the cluster, with a query."""
        return f"{self.url(*segments)}?{urlencode(values, doseq=True)}"

    def to(self, *segments: object) -> Relationship:
        """Return the link to a path within the cluster."""
        return Relationship(related=self.url(*segments))

    def about(self, *segments: object, **names: object) -> Metadata:
        """Return the metadata of a resource: its path, and the parts of its resource name."""
        parts = "".join(f"/{key.replace('_', '-')}={value}" for key, value in names.items())
        return Metadata(
            self=self.url(*segments), resource_name=f"crn:///kafka={self.cluster_id}{parts}"
        )

    def listing(
        self, cursor: str | None = None, request: Request | None = None
    ) -> CollectionMetadata:
        """Return the metadata of a collection, with the next page if there is a cursor."""
        if cursor is None or request is None:
            return CollectionMetadata(self=self.own)
        following = request.url.include_query_params(cursor=cursor)
        return CollectionMetadata(
            self=self.own, next=f"{self.base}{following.path}?{following.query}"
        )


def service(request: Request) -> AdminService:
    """Return the administration of this controller."""
    found = request.app.state.admin
    assert isinstance(found, AdminService), found
    return found


def admin_context(request: Request) -> AdminContext:
    """Return the context of a request."""
    return service(request).context(requester_of(request.scope))


Ctx = Annotated[AdminContext, Depends(admin_context)]


def base_url(request: Request) -> str:
    """Return scheme, host and port under which the caller has reached this controller."""
    return str(request.base_url).rstrip("/")


def decoded(segment: str) -> str:
    """Return a name from a path: routes are matched before names are decoded."""
    return unquote(segment, errors="replace")


Name = Annotated[str, AfterValidator(decoded)]

ClusterId = Annotated[
    str, Path(description="id of the cluster", examples=["mJ2v1Yd5S6uI0F6h7kPzDw"], max_length=255)
]
TopicName = Annotated[
    Name, Path(description="name of a topic", examples=["orders"], max_length=NAME_CHARS_MAX)
]
PartitionId = Annotated[
    int, Path(description="number of a partition", examples=[0], ge=0, lt=2**31)
]
BrokerIdPath = Annotated[int, Path(description="id of a broker", examples=[1], ge=0, lt=2**31)]
ConfigName = Annotated[
    Name,
    Path(
        description="name of a configuration", examples=["retention.ms"], max_length=NAME_CHARS_MAX
    ),
]
GroupId = Annotated[
    Name, Path(description="id of a group", examples=["billing"], max_length=NAME_CHARS_MAX)
]
Cursor = Annotated[
    str | None, Query(description="cursor of a page, from metadata.next", max_length=1_024)
]
PageSize = Annotated[
    int, Query(description="items of a page, at most", ge=1, le=PAGE_MAX, examples=[100])
]
PAGE_SIZE_DEFAULT = PAGE_DEFAULT


def links(request: Request, cluster_id: ClusterId, ctx: Ctx) -> Links:
    """Return the links of a request. Raises AdminError for the id of another cluster."""
    if decoded(cluster_id) != ctx.image.cluster_id:
        raise not_found(
            f"cluster {decoded(cluster_id)!r} is not served here",
            field="cluster_id",
            remedy="GET /v3/clusters names the cluster",
        )
    base = base_url(request)
    return Links(base, ctx.image.cluster_id, base + request.url.path)


Here = Annotated[Links, Depends(links)]


def cluster_router(
    tag: str, responses: dict[int | str, dict[str, Any]], *, route_class: type[APIRoute] = APIRoute
) -> APIRouter:
    """Return the router of requests to the cluster. All are refused for the id of another one: a
    change that was meant for that must not be made here.
    """
    return APIRouter(
        prefix="/v3/clusters/{cluster_id}",
        tags=[tag],
        responses=responses,
        dependencies=[Depends(links)],
        route_class=route_class,
    )
