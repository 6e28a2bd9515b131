"""Prints the API's description: `python -m paddock.api.print_openapi` writes what `/openapi.json` serves.

With `--types` it contains the body schemas only; the console's types are generated from them.
"""

from __future__ import annotations

import json
import sys
from typing import Any, cast

from paddock.api.application import create_routers, create_routes_app
from paddock.api.http import openapi_document
from paddock.api.services import ApiServices


class _UnusedServices:
    """Stands in for the services, which are not used while routes are only described."""

    def __getattr__(self, name: str) -> Any:
        return _UnusedServices()


def render_openapi(*, types: bool = False) -> str:
    """Return the OpenAPI document as JSON; with `types`, only its schemas."""
    document = openapi_document.build_openapi_document(
        create_routes_app(create_routers(cast(ApiServices, _UnusedServices())))
    )
    if types:
        document = {**document, "paths": {}, "components": {"schemas": document["components"]["schemas"]}}
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render_openapi(types="--types" in sys.argv[1:]))
