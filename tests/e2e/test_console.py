"""`paddock console` opens the console with the user signed in."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.e2e.cli_driver import PaddockCliServer


def sign_in_with_address(address: str) -> str:
    url, _, code = address.partition("/#code=")
    response = httpx.post(f"{url}/v1/login", json={"code": code})
    assert response.status_code == 200, response.text
    return str(response.json()["name"])


def test_console_without_display_prints_one_time_address(server: PaddockCliServer) -> None:
    result = server.run("console", DISPLAY="", WAYLAND_DISPLAY="")
    assert result.returncode == 0, result.stderr
    address = result.stdout.decode().strip()
    assert "It works once, within two minutes." in result.stderr.decode()
    assert address.startswith(f"{server.url}/#code=pdc_")
    assert sign_in_with_address(address) == "local"
    url, _, code = address.partition("/#code=")
    assert httpx.post(f"{url}/v1/login", json={"code": code}).status_code == 401


def test_console_with_display_opens_a_browser(server: PaddockCliServer, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    result = server.run("console", DISPLAY=":99", BROWSER=f"{browser} %s")
    assert result.returncode == 0 and result.stdout.decode() == f"opened {server.url} in your browser\n"
    assert b"pdc_" not in result.stdout
    assert sign_in_with_address((tmp_path / "opened").read_text().strip()) == "local"


def test_json_console_address_signs_in(server: PaddockCliServer) -> None:
    assert sign_in_with_address(server.json_output("console")["url"]) == "local"
