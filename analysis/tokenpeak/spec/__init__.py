"""Sweep specs as a user writes them: axes, workloads, load levels, SLOs and windows, validated field by field."""

from pydantic import BaseModel, ConfigDict


class Declaration(BaseModel):
    """A frozen record that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
