"""Pages of numbered listings: query parameters and the `pagination` of an answer."""

from __future__ import annotations

import math
from typing import Annotated

from fastapi import Query
from pydantic import Field

from paddock.api.http.body_models import ResponseBody

MAX_PAGE = 1_000_000
PageNumber = Annotated[int, Query(ge=1, le=MAX_PAGE)]
PageSize = Annotated[int, Query(ge=1, le=200, alias="pageSize")]


class Pagination(ResponseBody):
    page: int = Field(ge=1)
    page_size: int = Field(ge=1)
    total_items: int = Field(ge=0)
    total_pages: int = Field(ge=0)
    has_next_page: bool

    @classmethod
    def for_total(cls, page: int, page_size: int, total: int) -> Pagination:
        pages = math.ceil(total / page_size)
        return cls(page=page, page_size=page_size, total_items=total, total_pages=pages, has_next_page=page < pages)
