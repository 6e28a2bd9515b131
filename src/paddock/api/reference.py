"""Prints the description of the API: `python -m paddock.api.reference` gives what `/openapi.json` does.

With `--types` it describes what is sent and answered, and not the routes: the console's types are made of that.
"""

from __future__ import annotations

import json
import sys
from typing import Any, cast

from paddock.api import pages
from paddock.api.application import make_routers, make_routes
from paddock.api.services import Services


class _Nobody:
    """Stands where services would be. Nobody is asked anything as long as routes are only described."""

    def __getattr__(self, name: str) -> Any:
        return _Nobody()


def description(*, types: bool = False) -> str:
    """The API as OpenAPI describes it, in JSON; with `types`, its messages alone."""
    document = pages.describe(make_routes(make_routers(cast(Services, _Nobody()))))
    if types:
        document = {**document, "paths": {}, "components": {"schemas": document["components"]["schemas"]}}
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(description(types="--types" in sys.argv[1:]))
