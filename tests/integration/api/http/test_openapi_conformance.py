"""The server conforms to its OpenAPI document for any input, and never fails."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests.support.server import Server

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
    ignored_auth,
]
STREAMS = r"^/v1/(((sandboxes/\{sandbox_id\}|sessions/\{session_id\})/)?events|exchanges/events)$"
EXAMPLES = 6


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    script = tmp_path_factory.mktemp("script") / "short.yaml"
    script.write_text("turns: [{say: Hello.}]")
    models = {"providers": {"short": {"kind": "script", "file": str(script)}}, "models": {"short": "short"}}
    return {"quotas": {"sandboxes": 3, "snapshots": 3}, "llm": models}


@pytest.mark.timeout(300)
def test_server_conforms_to_its_openapi_document(server: Server) -> None:
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json").exclude(path_regex=STREAMS)
    headers = {"Authorization": f"Bearer {server.key}"}
    failures = []
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    assert len(operations) > 40
    for operation, mode in itertools.product(operations, GenerationMode):
        strategy = operation.as_strategy(generation_mode=mode)

        @hypothesis.settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(case=strategy)
        def keeps(case: schemathesis.Case[Any]) -> None:
            case.call_and_validate(headers=headers, checks=CHECKS, timeout=30)

        try:
            keeps()
        except hypothesis.errors.Unsatisfiable:
            continue  # A request without parameters and body cannot be invalid.
        except BaseExceptionGroup as problem:
            failures += [f"{operation.label}: {error}" for error in problem.exceptions]
    assert not failures, "\n\n".join(failures)


def test_every_operation_documents_its_errors(server: Server) -> None:
    with server.client("") as anonymous:
        document = anonymous.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if operation.get("security") == []:
                continue
            answers = operation["responses"]
            assert {"400", "401", "403", "413", "500", "503"} <= set(answers), (method, path)
            assert "422" not in answers
            assert operation["description"], (method, path)
            if "{sandbox_id}" in path or "{session_id}" in path:
                assert "404" in answers, (method, path)
