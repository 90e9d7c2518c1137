"""Base of the models of the administration, and the parts that several of them have."""

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    """Base of all answers. Unknown fields are an error: answers are made here only."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Input(BaseModel):
    """Base of all bodies of requests. Unknown fields are refused: misspellings are found."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ItemProblem(Model):
    """Reason why an item, or a part of it, is missing."""

    item: str = Field(description="the node, partition or resource", examples=["broker 3"])
    error_code: int = Field(examples=[50003])
    message: str = Field(examples=["broker 3 did not answer within 1500 ms"])


class PartitionName(Model):
    """One partition."""

    topic_name: str = Field(examples=["orders"])
    partition_id: int = Field(examples=[0])
