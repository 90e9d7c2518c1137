"""Dead letters: share groups with a queue, the letters in it, and those that wait."""

from typing import Annotated, Literal

from fastapi import Query, Request
from pydantic import Field

from controller.admin import dead_letters as admin
from controller.admin.paging import page
from controller.rest.problems import RESPONSES
from controller.rest.shapes import (
    PAGE_SIZE_DEFAULT,
    Collection,
    Ctx,
    Cursor,
    GroupId,
    Here,
    PageSize,
    Relationship,
    Resource,
    cluster_router,
)

router = cluster_router("Share groups", RESPONSES)


class DeadLetterQueueListed(admin.DeadLetterQueue, Resource):
    """Share group that names a queue."""

    kind: Literal["TidemarkDeadLetterQueue"] = "TidemarkDeadLetterQueue"
    cluster_id: str
    letters: Relationship


class DeadLetterQueueList(Collection[DeadLetterQueueListed]):
    """Page of share groups with a queue, by id."""

    kind: Literal["TidemarkDeadLetterQueueList"] = "TidemarkDeadLetterQueueList"
    total: int = Field(examples=[1])


class DeadLettersData(admin.LetterList, admin.DeadLetterQueue, Resource):
    """Queue of a share group: its latest letters, and those that wait."""

    kind: Literal["TidemarkDeadLetters"] = "TidemarkDeadLetters"
    cluster_id: str
    waiting: list[admin.WaitingLetters] = Field(
        description="letters that are not in the queue yet, by partition"
    )


@router.get("/dead-letters", operation_id="listDeadLetterQueues")
async def list_queues(
    request: Request,
    ctx: Ctx,
    here: Here,
    cursor: Cursor = None,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
) -> DeadLetterQueueList:
    """Return the share groups that have a dead-letter queue."""
    known = {one.group_id: one for one in admin.queues(ctx)}
    found = page(sorted(known), cursor, page_size)
    return DeadLetterQueueList(
        metadata=here.listing(found.cursor, request),
        total=found.total,
        data=[
            DeadLetterQueueListed(
                **known[group_id].model_dump(),
                metadata=here.about("dead-letters", group_id),
                cluster_id=here.cluster_id,
                letters=here.to("dead-letters", group_id),
            )
            for group_id in found.keys
        ],
    )


@router.get("/dead-letters/{group_id}", operation_id="getDeadLetters")
async def dead_letters(
    ctx: Ctx,
    here: Here,
    group_id: GroupId,
    limit: Annotated[int, Query(ge=1, le=admin.LETTERS_MAX)] = 50,
) -> DeadLettersData:
    """Return the latest letters of a share group, newest first, and those that wait. A queue that
    does not exist has none.
    """
    queue = admin.queue_of(ctx, group_id)
    found = await admin.letters(ctx, group_id, limit)
    return DeadLettersData(
        **queue.model_dump(),
        **found.model_dump(),
        waiting=await admin.waiting(ctx, group_id),
        metadata=here.about("dead-letters", group_id),
        cluster_id=here.cluster_id,
    )
