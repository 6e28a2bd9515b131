"""Check of `paddock doctor`: whether the server reaches the package indexes of the network preset `packages`."""

from __future__ import annotations

import asyncio
import os
from ipaddress import ip_address
from typing import Any

from paddock.config import Config
from paddock.config.network_targets import parse_allowed_target
from paddock.config.outgoing_proxy import OutgoingProxies
from paddock.errors import ConfigError
from paddock.network.name_lookups import NameLookups
from paddock.network.outgoing_proxy_tunnel import open_proxy_tunnel
from paddock.network.package_indexes import read_package_indexes
from paddock.sandbox.base import HostCheck

CHECK_SECONDS = 3.0
DEFAULT_PORT = 443
CHECK = "package indexes"


async def check_package_indexes(config: Config) -> HostCheck:
    """Connect to every index as the server would do for a sandbox, through its proxy if there is one."""
    try:
        proxies = config.outgoing.proxies(os.environ)
    except ConfigError as error:
        return HostCheck(check=CHECK, ok=False, detail=error.message, required=False)
    targets = list(dict.fromkeys((*read_package_indexes().targets(), *config.network.package_hosts)))
    lookups = NameLookups()
    problems = await asyncio.gather(*(_connection_problem(target, config, proxies, lookups) for target in targets))
    unreachable = {target: problem for target, problem in zip(targets, problems, strict=True) if problem is not None}
    reachable = [target for target in targets if target not in unreachable]
    lines = [f"reachable for sandboxes with `network: packages`: {', '.join(reachable)}"] if reachable else []
    lines += [f"{target}: {problem}" for target, problem in unreachable.items()]
    return HostCheck(
        check=CHECK,
        ok=not unreachable,
        detail="\n".join(lines),
        fix="if sandboxes shall install packages: configure pip, npm and apt of this machine for a mirror that it "
        "reaches, or set HTTPS_PROXY",
        required=False,
    )


async def _connection_problem(
    target: str, config: Config, proxies: OutgoingProxies, lookups: NameLookups
) -> str | None:
    """Return why a target cannot be reached, or `None`."""
    parsed = parse_allowed_target(target)
    host = parsed.name or str(parsed.network.network_address if parsed.network else "")
    port = parsed.port or DEFAULT_PORT
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            address = config.network.hosts.get(host) or await _resolve(host, port, lookups)
            scheme: Any = "http" if port == 80 else "https"
            proxy = proxies.choose(scheme, host, port, ip_address(address))
            if proxy is None:
                _, writer = await asyncio.open_connection(address, port)
                writer.close()
            else:
                (await open_proxy_tunnel(proxy, address, port)).close()
    except TimeoutError:
        return f"no answer within {CHECK_SECONDS:g} s"
    except OSError as error:
        # The event loop's message lacks the reason.
        return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror or error)
    return None


async def _resolve(host: str, port: int, lookups: NameLookups) -> str:
    return str((await lookups.look_up(host, port, asyncio.Semaphore(1)))[0])
