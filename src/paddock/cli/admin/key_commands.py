"""`paddock key`: creates, lists and revokes API keys, through the server or directly in the database."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.connection.server_address import has_running_server
from paddock.cli.framework import option_parsing
from paddock.cli.framework.command_registration import command_group, register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import CliError, UsageError
from paddock.cli.output.formatting import format_age, format_time_left, parse_time

if TYPE_CHECKING:
    from paddock.model.keys import ApiKey

_SCOPES = (
    "sandboxes:read, sandboxes:write, runs:read, runs:write, sessions:read, sessions:write, images:write, llm:use, "
    "llm:read, mcp:use, mcp:write, metrics:read, keys:admin, tenant:all or admin"
)

_LIMIT_NAMES = {
    "concurrency": "concurrency",
    "requestsPerMinute": "requests_per_minute",
    "tokensPerMinute": "tokens_per_minute",
}
"""Names of limits in the API and in the database."""


def register_commands(app: typer.Typer) -> None:
    for name in ("key", "keys"):  # the plural is an alias for a common typing mistake
        keys = command_group("Create, list and revoke API keys.")
        app.add_typer(keys, name=name, hidden=name == "keys")
        register_command(
            keys,
            "create",
            server=True,
            examples="""
                paddock key create ci
                paddock key create dashboard --scope sandboxes:read --expires 30d
                paddock key create ann --scope llm:use --model 'gpt-*' --budget-cost 20 --for-user ann@example.org
                paddock key create acme-admin --tenant acme --scope keys:admin --scope sandboxes:write
            """,
        )(create_key)
        register_command(keys, "list", server=True, examples="paddock key list")(list_keys)
        register_command(keys, "revoke", server=True, examples="paddock key revoke key-0123456789abcdef")(revoke_keys)


async def create_key(
    cli: CliContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the key.", show_default=False)],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help=f"Permission: {_SCOPES}.  [default: sandboxes:write; llm:use for a key with models, a budget, "
            "limits or a sandbox]",
        ),
    ] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Tenant of the key.  [default: your own]")] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="Lifetime, such as 30d.  [default: unlimited]")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Allowed model or pattern.  [default: all]")
    ] = None,
    budget_requests: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Total limit of model requests.")
    ] = None,
    budget_tokens: Annotated[int | None, typer.Option(metavar="N", min=1, help="Total limit of model tokens.")] = None,
    budget_cost: Annotated[
        float | None, typer.Option(metavar="USD", help="Total limit of model cost in US dollars.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Limit of concurrent model requests.")
    ] = None,
    per_minute: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Limit of model requests per minute.")
    ] = None,
    tokens_per_minute: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Limit of model tokens per minute.")
    ] = None,
    for_user: Annotated[str | None, typer.Option(metavar="USER", help="User to attribute requests to.")] = None,
    for_run: Annotated[str | None, typer.Option(metavar="RUN", help="Run to attribute requests to.")] = None,
    for_session: Annotated[
        str | None, typer.Option(metavar="SESSION", help="Session to attribute requests to.")
    ] = None,
    for_sandbox: Annotated[
        str | None, typer.Option(metavar="SANDBOX", help="Restrict the key to this sandbox and its lifetime.")
    ] = None,
) -> None:
    """Create an API key. The secret is printed only once."""
    budget = {"requests": budget_requests, "tokens": budget_tokens, "cost": budget_cost}
    limits = {"concurrency": concurrency, "requestsPerMinute": per_minute, "tokensPerMinute": tokens_per_minute}
    bounds = {"sandbox": for_sandbox, "models": model, "budget": _drop_empty(budget), "limits": _drop_empty(limits)}
    terms = _drop_empty({**bounds, "user": for_user, "run": for_run, "session": for_session})
    expires_at = (
        datetime.now(UTC) + timedelta(seconds=option_parsing.parse_duration_option(expires, "--expires"))
        if expires
        else None
    )
    # Model limits imply a key for models.
    scopes = [_check_scope(item) for item in scope or ["llm:use" if _drop_empty(bounds) else "sandboxes:write"]]
    if _uses_server(cli):
        request: dict[str, Any] = {"name": name, "scopes": scopes, **terms}
        if tenant:
            request["tenant"] = tenant
        if expires_at:
            request["expiresAt"] = expires_at.isoformat()
        async with cli.open_client() as client:
            created = await client.post("/v1/keys", request)
    else:
        created = await _create_key_in_database(cli, name, scopes, tenant, expires_at, terms)
    if cli.as_json:
        return cli.out.print_json(created)
    if sys.stdout.isatty():
        cli.out.print_line(
            f"Created key {created['id']} ({created['name']}). This is its secret; it is not shown again:\n"
        )
    return cli.out.print_line(str(created["secret"]))


async def list_keys(
    cli: CliContext,
    everything: Annotated[bool, typer.Option("--all", help="Include revoked and expired keys.")] = False,
) -> None:
    """List API keys, without their secrets."""
    if _uses_server(cli):
        async with cli.open_client() as client:
            found = await client.list_all("/v1/keys")
    else:
        from paddock.auth.api_keys import ApiKeys
        from paddock.cli.connection.data_directory import open_store
        from paddock.store.key_store import ApiKeyStore

        async with open_store(cli.data_directory) as store:
            found = [_key_document(key) for key in await ApiKeys(ApiKeyStore(store)).list()]
    if not everything:
        found = [key for key in found if _key_state(key) == "active"]
    if cli.as_json:
        return cli.out.print_json(found)
    if not found:
        return cli.out.print_if_interactive("No keys. Create one: paddock key create NAME")
    rows = [
        [
            str(key["id"]),
            str(key["name"]),
            str(key.get("tenant", "")),
            " ".join(sorted(key.get("scopes") or [])),
            _key_state(key) if _key_state(key) != "active" else format_time_left(parse_time(key.get("expiresAt"))),
            f"{used} ago" if (used := format_age(parse_time(key.get("lastUsedAt")))) else "never",
        ]
        for key in found
    ]
    return cli.out.print_table(["ID", "NAME", "TENANT", "SCOPES", "EXPIRES", "USED"], rows, wraps=["SCOPES"])


async def revoke_keys(
    cli: CliContext,
    keys: Annotated[list[str], typer.Argument(metavar="KEY", help="IDs, names, or secrets.", show_default=False)],
) -> None:
    """Revoke API keys, effective immediately."""
    if _uses_server(cli):
        async with cli.open_client() as client:
            ids = [_choose_key(await client.list_all("/v1/keys"), item) for item in keys]
            for item in ids:
                await client.delete(f"/v1/keys/{item}")
    else:
        from paddock.auth.api_keys import ApiKeys
        from paddock.cli.connection.data_directory import open_store
        from paddock.store.key_store import ApiKeyStore

        async with open_store(cli.data_directory) as store:
            known = ApiKeys(ApiKeyStore(store))
            ids = [_choose_key([_key_document(key) for key in await known.list()], item) for item in keys]
            for item in ids:
                await known.revoke(item)
    if cli.as_json:
        return cli.out.print_json({"revoked": ids})
    return cli.out.print_line("\n".join(ids))


async def _create_key_in_database(
    cli: CliContext, name: str, scopes: list[str], tenant: str | None, expires: datetime | None, values: dict[str, Any]
) -> dict[str, Any]:
    from pydantic import ValidationError

    from paddock.auth.api_keys import ApiKeys
    from paddock.cli.connection.data_directory import open_store
    from paddock.model.keys import DEFAULT_TENANT, ApiKeyTerms, Scope
    from paddock.store.key_store import ApiKeyStore

    if "sandbox" in values:
        raise UsageError("--for-sandbox needs a running server", hint="start one: paddock serve")
    limits = {_LIMIT_NAMES[name]: value for name, value in values.get("limits", {}).items()}
    try:
        terms = ApiKeyTerms.model_validate({**values, "limits": limits})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise UsageError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
    async with open_store(cli.data_directory) as store:
        known_scopes = [Scope(item) for item in scopes]
        key, secret = await ApiKeys(ApiKeyStore(store)).create(
            name, tenant or DEFAULT_TENANT, known_scopes, expires, terms=terms
        )
    return {**_key_document(key), "secret": secret}


def _drop_empty(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, {}, [])}


def _uses_server(cli: CliContext) -> bool:
    return cli.has_named_server or has_running_server(cli.data_directory)


def _check_scope(text: str) -> str:
    from paddock.model.keys import Scope

    if text not in list(Scope):
        raise UsageError(f"--scope {text!r} is unknown", hint=f"use {_SCOPES}")
    return text


def _choose_key(keys: list[dict[str, Any]], name: str) -> str:
    by_prefix = [key for key in keys if name.startswith("pdk_") and name.startswith(str(key.get("prefix")))]
    matches = [key for key in keys if key["id"] == name] or by_prefix
    matches = matches or [key for key in keys if key["name"] == name and _key_state(key) == "active"]
    if len(matches) != 1:
        many = f"{name} matches several keys" if matches else f"there is no key {name}"
        raise CliError(many, hint="list ids: paddock key list --all")
    return str(matches[0]["id"])


def _key_document(key: ApiKey) -> dict[str, Any]:
    """Return a key in the API's format."""
    dates = {"createdAt": key.created_at, "expiresAt": key.expires_at, "revokedAt": key.revoked_at}
    document: dict[str, Any] = {
        "id": key.id,
        "name": key.name,
        "tenant": key.tenant,
        "scopes": sorted(key.scopes),
        "prefix": key.prefix,
    }
    for name, date in {**dates, "lastUsedAt": key.last_used_at}.items():
        if date is not None:
            document[name] = date.isoformat()
    for name, value in (("sandbox", key.sandbox), ("run", key.run), ("session", key.session), ("user", key.user)):
        if value is not None:
            document[name] = value
    limits = key.limits.model_dump()
    bounds = {
        "models": list(key.models),
        "budget": key.budget.model_dump(exclude_none=True),
        "limits": _drop_empty({api_name: limits[name] for api_name, name in _LIMIT_NAMES.items()}),
    }
    return {**document, **_drop_empty(bounds)}


def _key_state(key: dict[str, Any]) -> str:
    if key.get("revokedAt"):
        return "revoked"
    expires = parse_time(key.get("expiresAt"))
    return "expired" if expires and expires <= datetime.now(UTC) else "active"
