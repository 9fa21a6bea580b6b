"""Decodes with pydantic into a tagged union whose fields have bounds."""

from typing import Annotated, Any, Literal

from decoding import run
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

Name = Annotated[str, Field(min_length=1, max_length=128)]


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    v: Literal[1]
    request_id: Annotated[Name, Field(alias="requestId")]


class ToolRequest(Message):
    type: Literal["tool.request"]
    tool: Name
    input: dict[str, Any]


class InferenceRequest(Message):
    type: Literal["inference.request"]
    api: Name
    model: Name
    stream: bool
    body: dict[str, Any]


if __name__ == "__main__":
    union = Annotated[ToolRequest | InferenceRequest, Field(discriminator="type")]
    run(TypeAdapter(union).validate_json)
