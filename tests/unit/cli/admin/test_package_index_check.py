"""`paddock doctor` connects to the package indexes of the machine."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from paddock.cli.admin import package_index_check
from paddock.cli.admin.package_index_check import check_package_indexes
from paddock.config import Config
from paddock.network.package_indexes import PackageIndexes

pytestmark = pytest.mark.anyio


def indexes(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> Config:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    found = PackageIndexes(addresses, addresses[0])
    monkeypatch.setattr(package_index_check, "read_package_indexes", lambda: found)
    return Config.model_validate({"network": {"hosts": {"index.test": "127.0.0.1"}}})


async def test_reached_indexes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        finding = await check_package_indexes(indexes(monkeypatch, f"http://index.test:{port}/simple"))
    assert finding.ok and f"index.test:{port}" in finding.detail and not finding.required


async def test_each_problem_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    config = indexes(monkeypatch, f"http://index.test:{port}/simple", "https://nowhere.invalid/simple")
    finding = await check_package_indexes(config)
    refused, unknown = finding.detail.splitlines()
    assert not finding.ok and not finding.required and "mirror" in (finding.fix or "")
    assert refused.startswith(f"index.test:{port}: ") and "refused" in refused.lower()
    assert unknown.startswith("nowhere.invalid:443: ")


async def test_silent_name_server_delays_the_check_by_seconds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    answering = threading.Event()

    def look_up(*_: Any, **__: Any) -> Any:
        answering.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(package_index_check, "CHECK_SECONDS", 0.1)
    finding = await check_package_indexes(indexes(monkeypatch, "https://slow.test/simple"))
    assert finding.detail == "slow.test:443: no answer within 0.1 s"
    answering.set()
