"""The OAuth scenarios of the official conformance suite, with the gateway as the client.

The suite brings the MCP server and its authorization server, and judges what the gateway sends to them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from .test_conformance import NODE, SUITE

CLIENT = Path(__file__).with_name("oauth_suite_client.py")
SCENARIOS = (
    "metadata-default",
    "metadata-var1",
    "metadata-var2",
    "metadata-var3",
    "metadata-issuer-mismatch",
    "basic-cimd",
    "scope-from-www-authenticate",
    "scope-from-scopes-supported",
    "scope-omitted-when-undefined",
    "scope-step-up",
    "scope-retry-limit",
    "token-endpoint-auth-basic",
    "token-endpoint-auth-post",
    "token-endpoint-auth-none",
    "pre-registration",
    "2025-03-26-oauth-metadata-backcompat",
    "2025-03-26-oauth-endpoint-fallback",
    "resource-mismatch",
    "offline-access-scope",
    "offline-access-not-supported",
    "authorization-server-migration",
    "iss-supported",
    "iss-not-advertised",
    "iss-supported-missing",
    "iss-wrong-issuer",
    "iss-unexpected",
    "iss-normalized",
    "client-credentials-jwt",
    "client-credentials-basic",
)
NOT_OFFERED = {
    "dpop": "an extension: tokens bound to a key (RFC 9449); the gateway takes tokens of the type Bearer only",
    "dpop-nonce": "an extension of DPoP",
    "enterprise-managed-authorization": "an extension: exchanges an identity token of a company for a grant (ID-JAG)",
    "wif-jwt-bearer": "an extension: exchanges the identity of a workload in a cloud",
}
"""Scenarios of optional extensions that the gateway does not offer, and what they are."""
AT_ONCE = 2
"""Scenarios that run at the same time."""
SCORE = re.compile(r"^Passed: (\d+)/(\d+), (\d+) failed", re.MULTILINE)
pytestmark = pytest.mark.timeout(180)


@dataclass(frozen=True)
class Outcome:
    passed: int
    failed: int
    code: int
    output: str


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[str, Future[Outcome]]]:
    """Run all scenarios, a few at a time."""
    if not (NODE.exists() and SUITE.exists()):
        pytest.fail("the conformance suite is not installed; run `make setup-test`")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(run_scenario, name) for name in SCENARIOS}
        pool.shutdown(cancel_futures=True)


def run_scenario(name: str) -> Outcome:
    command = [str(NODE), str(SUITE), "client", "--command", f"{sys.executable} {CLIENT}", "--scenario", f"auth/{name}"]
    done = subprocess.run([*command, "--timeout", "60000"], capture_output=True, text=True, timeout=90)
    output = done.stdout + done.stderr
    found = SCORE.search(output)
    passed, failed = (int(found[1]), int(found[3])) if found else (0, 0)
    return Outcome(passed, failed, done.returncode, output)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_suite_accepts_the_sign_in(outcomes: dict[str, Future[Outcome]], name: str) -> None:
    outcome = outcomes[name].result(170)
    assert outcome.code == 0 and outcome.failed == 0 and outcome.passed > 0, outcome.output[-4000:]


def test_all_scenarios_of_the_suite_are_known() -> None:
    """A new version of the suite may have more."""
    listed = subprocess.run([str(NODE), str(SUITE), "list"], capture_output=True, text=True, timeout=60, check=True)
    assert set(re.findall(r"auth/([\w-]+)", listed.stdout)) == {*SCENARIOS, *NOT_OFFERED}
