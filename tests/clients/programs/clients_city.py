"""The form of an answer, for clients that take a Pydantic model."""

from typing import Literal

from pydantic import BaseModel


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "Rome"]
