"""The API's description: an OpenAPI document for programs, an HTML page for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

import paddock

API_DESCRIPTION = """Sandboxes for AI agents. The routes below `/v1/sandboxes`, `/v1/snapshots` and `/v1/pools` are
OpenSandbox's life cycle API, so its SDKs, CLI and MCP server work against this server.

`/v1/sandboxes/{id}/proxy/{port}/…` carries any request or WebSocket to a program in the sandbox and is not described
here, because the program decides what it answers."""
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1d2430}"
    "code{font:13px/1.4 ui-monospace,monospace}h2{margin-top:2.5rem;border-bottom:1px solid #d5dae1}"
    "details{margin:.3rem 0}summary{cursor:pointer}b{display:inline-block;width:4.5rem}"
    "table{border-collapse:collapse;margin:.5rem 0 1rem 1rem}td{padding:.1rem .8rem .1rem 0;vertical-align:top}"
    "@media(prefers-color-scheme:dark){body{background:#14171c;color:#dde3ea}h2{border-color:#39414d}}"
)
DOCS_CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


def build_openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, built once per app."""
    if app.openapi_schema is None:
        document = get_openapi(
            title="Paddock", version=paddock.__version__, description=API_DESCRIPTION, routes=app.routes
        )
        document["security"] = [{"bearer": []}, {"openSandboxKey": []}]
        components = document.setdefault("components", {})
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer", "description": "An API key."},
            "openSandboxKey": {"type": "apiKey", "in": "header", "name": "OPEN-SANDBOX-API-KEY"},
        }
        for _, _, operation in _iterate_operations(document):
            # FastAPI documents 422 for invalid requests; this API answers 400.
            operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            components.get("schemas", {}).pop(name, None)
        app.openapi_schema = document
    return app.openapi_schema


def render_docs_page(document: Mapping[str, Any]) -> str:
    """Render the OpenAPI document as an HTML page that loads no other resources."""
    groups: dict[str, list[str]] = {}
    for method, path, operation in _iterate_operations(document):
        groups.setdefault((operation.get("tags") or ["Other"])[0], []).append(
            _render_operation(method, path, operation)
        )
    body = "".join(f"<h2>{escape(name)}</h2>{''.join(entries)}" for name, entries in groups.items())
    about = "".join(f"<p>{escape(text)}</p>" for text in document["info"]["description"].split("\n\n"))
    title = f"Paddock {escape(document['info']['version'])}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title} API</title><style>{_STYLE}</style>'
        f'<h1>{title} API</h1>{about}<p>For programs: <a href="/openapi.json">/openapi.json</a></p>{body}</html>'
    )


def _render_operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    rows = [
        (f"{parameter['in']} <code>{escape(parameter['name'])}</code>", escape(parameter.get("description", "")))
        for parameter in operation.get("parameters", ())
    ]
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        rows.append(("body", f"{escape(kind)} <code>{escape(_type_name(content.get('schema', {})))}</code>"))
    rows += [(status, escape(answer["description"])) for status, answer in sorted(operation["responses"].items())]
    table = "".join(f"<tr><td>{name}</td><td>{text}</td></tr>" for name, text in rows)
    about = escape(operation.get("description", operation.get("summary", "")))
    return (
        f"<details><summary><b>{method.upper()}</b><code>{escape(path)}</code></summary>"
        f"<p>{about}</p><table>{table}</table></details>"
    )


def _type_name(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", schema.get("title", schema.get("type", "")))).rpartition("/")[2]


def _iterate_operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation
