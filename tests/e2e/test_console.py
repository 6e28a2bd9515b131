"""`paddock console` opens the console, signed in."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.e2e.cli_driver import Server


def logged_in_by(address: str) -> str:
    url, _, code = address.partition("/#code=")
    answer = httpx.post(f"{url}/v1/login", json={"code": code})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["name"])


def test_without_a_screen_it_prints_an_address_that_works_once(server: Server) -> None:
    done = server.run("console", DISPLAY="", WAYLAND_DISPLAY="")
    assert done.returncode == 0, done.stderr
    address = done.stdout.decode().strip()
    assert "It works once, within two minutes." in done.stderr.decode()
    assert address.startswith(f"{server.url}/#code=pdc_")
    assert logged_in_by(address) == "local"
    url, _, code = address.partition("/#code=")
    assert httpx.post(f"{url}/v1/login", json={"code": code}).status_code == 401


def test_with_a_screen_it_opens_a_browser(server: Server, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    done = server.run("console", DISPLAY=":99", BROWSER=f"{browser} %s")
    assert done.returncode == 0 and done.stdout.decode() == f"opened {server.url} in your browser\n"
    assert b"pdc_" not in done.stdout
    assert logged_in_by((tmp_path / "opened").read_text().strip()) == "local"


def test_for_programs(server: Server) -> None:
    assert logged_in_by(server.json("console")["url"]) == "local"
