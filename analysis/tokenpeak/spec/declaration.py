"""Base of what a user writes: unknown keys are refused."""

from pydantic import (
    BaseModel,
    ConfigDict,
)


class Declaration(BaseModel):
    """A frozen record that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
