"""Client program of the network benchmark; runs on the host, in sandboxes and in the namespaces of peers.

Usage: network_client.py MODE HOST PORT AMOUNT, prints one JSON document. Standard library only.
"""

from __future__ import annotations

import http.client
import json
import selectors
import socket
import ssl
import statistics
import subprocess
import sys
import time
from pathlib import Path

CHUNK = 256 * 1024
IDLE_SECONDS = 15
PIP_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "PIP_CONFIG_FILE": "/dev/null"}


def receive_bulk(host: str, port: int, size: int) -> dict[str, float]:
    """Download `size` bytes over one connection."""
    buffer = bytearray(CHUNK)
    with socket.create_connection((host, port)) as connection:
        connection.sendall(f"{size}\n".encode())
        started, received = time.perf_counter(), 0
        while count := connection.recv_into(buffer):
            received += count
    assert received == size, received
    return {"seconds": time.perf_counter() - started}


def measure_connects(host: str, port: int, count: int) -> dict[str, float]:
    """Measure connections up to their first byte, one after another."""
    times = []
    for _ in range(count):
        started = time.perf_counter()
        with socket.create_connection((host, port)) as connection:
            connection.sendall(b"1\n")
            assert connection.recv(1)
        times.append(time.perf_counter() - started)
    return {"median": statistics.median(times)}


def measure_requests(host: str, port: int, count: int) -> dict[str, float]:
    """Measure HTTP requests over one connection."""
    connection = http.client.HTTPConnection(host, port)
    started = 0.0
    for number in range(count + 10):
        if number == 10:
            started = time.perf_counter()
        connection.request("GET", "/")
        connection.getresponse().read()
    return {"per_second": count / (time.perf_counter() - started)}


def secure_connection(host: str, port: int) -> http.client.HTTPSConnection:
    """Return an HTTPS connection that trusts what the sandbox trusts."""
    return http.client.HTTPSConnection(host, port, context=ssl.create_default_context())


def receive_secure_bulk(host: str, port: int, size: int) -> dict[str, float]:
    """Download `size` bytes over HTTPS."""
    connection = secure_connection(host, port)
    connection.request("GET", f"/{size}")
    response = connection.getresponse()
    buffer = bytearray(CHUNK)
    started, received = time.perf_counter(), 0
    while count := response.readinto(buffer):
        received += count
    assert received == size, received
    return {"seconds": time.perf_counter() - started}


def measure_secure_requests(host: str, port: int, count: int) -> dict[str, float]:
    """Measure HTTPS requests over one connection."""
    connection = secure_connection(host, port)
    connection.request("GET", "/2")
    connection.getresponse().read()
    started = time.perf_counter()
    for _ in range(count):
        connection.request("GET", "/2")
        connection.getresponse().read()
    return {"per_second": count / (time.perf_counter() - started)}


def measure_secure_connects(host: str, port: int, count: int) -> dict[str, float]:
    """Measure HTTPS connections up to the answer, one after another."""
    times = []
    context = ssl.create_default_context()
    for _ in range(count):
        started = time.perf_counter()
        connection = http.client.HTTPSConnection(host, port, context=context)
        connection.request("GET", "/2")
        connection.getresponse().read()
        times.append(time.perf_counter() - started)
        connection.close()
    return {"median": statistics.median(times)}


def install_wheel(host: str, port: int, rounds: int) -> dict[str, float]:
    """Measure `pip install` of the index's package in a virtual environment, without pip's cache."""
    environment = Path.cwd() / "wheel-environment"
    pip = environment / "bin" / "pip"
    if not pip.exists():
        subprocess.run(["python3", "-m", "venv", str(environment)], check=True, env=PIP_ENVIRONMENT)
    options = ["--quiet", "--no-cache-dir", "--no-deps", "--disable-pip-version-check", "--trusted-host", host]
    times = []
    for _ in range(rounds):
        index = f"http://{host}:{port}/simple/"
        started = time.perf_counter()
        subprocess.run(
            [pip, "install", *options, "--index-url", index, "large-package"], check=True, env=PIP_ENVIRONMENT
        )
        times.append(time.perf_counter() - started)
        subprocess.run([pip, "uninstall", "--quiet", "--yes", "large-package"], check=True, env=PIP_ENVIRONMENT)
    return {"seconds": statistics.median(times)}


def receive_concurrently(host: str, port: int, count: int) -> dict[str, float]:
    """Download over many connections for five seconds; return the shares of the least and the most served."""
    waiting = selectors.DefaultSelector()
    received = {}
    for _ in range(count):
        connection = socket.create_connection((host, port))
        connection.sendall(b"1000000000000\n")
        received[connection] = 0
        waiting.register(connection, selectors.EVENT_READ)
    buffer = bytearray(CHUNK)
    until = time.perf_counter() + 5
    while time.perf_counter() < until:
        for key, _ in waiting.select(1):
            connection = key.fileobj  # type: ignore[assignment]
            received[connection] += connection.recv_into(buffer)
    ordered = sorted(received.values())
    for connection in received:
        connection.close()
    return {"least": ordered[0], "most": ordered[-1], "total": sum(ordered)}


def hold_idle(host: str, port: int, count: int) -> dict[str, float]:
    """Keep connections open without traffic."""
    kept = [socket.create_connection((host, port)) for _ in range(count)]
    time.sleep(IDLE_SECONDS)
    return {"open": len(kept)}


MODES = {
    "bulk": receive_bulk,
    "connect": measure_connects,
    "requests": measure_requests,
    "install": install_wheel,
    "concurrent": receive_concurrently,
    "idle": hold_idle,
    "secure-bulk": receive_secure_bulk,
    "secure-requests": measure_secure_requests,
    "secure-connect": measure_secure_connects,
}

if __name__ == "__main__":
    print(json.dumps(MODES[sys.argv[1]](sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
