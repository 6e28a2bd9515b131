"""Change the visibility of a sandbox, run or session."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from paddock.api.http.body_models import RequestBody
from paddock.model.owners import Visibility

VisibilityField = Annotated[Visibility, Field(strict=False)]


class ShareRequest(RequestBody):
    visibility: VisibilityField
    """`private`: visible to the owner only. `tenant`: to every key of the tenant."""
