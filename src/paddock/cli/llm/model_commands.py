"""`paddock llm list` and `test`: lists configured models and sends one a test question."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.framework.command_registration import command_group, register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import UsageError, print_warning
from paddock.cli.output.formatting import format_age, parse_time, sanitize_text

if TYPE_CHECKING:
    from paddock.cli.llm.chat_completion import CompletionResult
    from paddock.config.llm import LlmConfig

_DEFAULT_PROMPT = "Say hello in one short sentence."
_KNOWN_FIELDS = ("messages", "tools", "answer", "pieces")
"""Fields of an exchange that `llm test` prints separately."""
_OFFLINE_NOTE = "No server is running; this is the configuration. Start the server to ask the providers: paddock serve"
_NO_MODELS = """\
No models are configured. Set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or configure a provider in
paddock.yaml, then restart the server:

llm:
  providers:
    openai: {kind: openai, key: "${OPENAI_API_KEY}"}
  models:
    gpt-*: openai/gpt-*

DASHSCOPE_API_KEY and ZHIPUAI_API_KEY are known as well. For a provider at another address, set its 'base_url', or a
variable such as OPENAI_BASE_URL."""


def register_commands(app: typer.Typer) -> typer.Typer:
    models = command_group("Test models and inspect recorded requests.")
    app.add_typer(models, name="llm")
    register_command(models, "list", server=True, examples="paddock llm list\npaddock llm list --json")(list_models)
    register_command(
        models,
        "test",
        server=True,
        examples="""
            paddock llm test
            paddock llm test fast --stream --prompt 'Write a haiku about fences.'
            paddock llm test openai/gpt-5-mini
        """,
    )(ask_test_question)
    return models


async def list_models(cli: CliContext) -> None:
    """List the models that can be requested.

    For patterns such as `gpt-*`, the server asks the provider for its models. A provider whose requests keep failing is
    paused for a while and shown as failing; one that refused its key is shown with the time. A provider that did not
    list its models is shown as not reached until one of them answers, with well-known names.

    If no server is running, the models, patterns and providers of the configuration are listed.
    """
    if not cli.has_server:
        return _list_configured_models(cli)
    async with cli.open_client() as client:
        found = await client.get("/v1/llm")
    if cli.as_json:
        return cli.out.print_json(found)
    if lost := found["archive"]["lost"]:
        print_warning(f"{lost} exchanges could not be archived since the server started; see its log")
    for each in found["providers"]:
        if each.get("keyRefusedAt"):
            age = format_age(parse_time(each["keyRefusedAt"]))
            when = "just now" if age in ("0s", "1s") else f"{age} ago"
            refused = f"provider {each['name']} refused its key {when}"
            print_warning(f"{refused}; check {each.get('foundIn') or 'it in paddock.yaml'} and restart the server")
        elif each.get("unreached"):
            print_warning(f"provider {each['name']} was not reached: {each['listProblem']}")
    _warn_of_ignored_keys(found)
    patterns, models = found["patterns"], found["models"]
    if not models and not patterns:
        return cli.out.print_line(_NO_MODELS) if cli.out.is_interactive else None
    providers = {provider["name"]: provider for provider in found["providers"]}
    falls_back = any(model.get("fallbacks") for model in models)
    rows = [_model_row(model, providers.get(model["provider"], {}), falls_back) for model in models]
    columns = ["MODEL", "PROVIDER", "KIND", "PROVIDER'S MODEL", "STATE", *(["FALLBACKS"] if falls_back else [])]
    cli.out.print_table(columns, rows, wraps=["MODEL", "PROVIDER'S MODEL", "FALLBACKS"])
    if cli.out.is_interactive:
        for line in _model_list_notes(found, providers):
            cli.out.print_line(f"\n{line}")
    return None


def _list_configured_models(cli: CliContext) -> None:
    """List models, patterns and providers of the configuration, without asking any provider."""
    found = describe_configured_models(cli.lenient_config.config.llm)
    if cli.as_json:
        return cli.out.print_json(found)
    _warn_of_ignored_keys(found)
    listed = [*found["models"], *found["patterns"]]
    if not listed:
        return cli.out.print_line(_NO_MODELS) if cli.out.is_interactive else None
    kinds = {provider["name"]: provider["kind"] for provider in found["providers"]}
    falls_back = any(model["fallbacks"] for model in listed)
    rows = [
        [model["name"], model["provider"], kinds[model["provider"]], model["model"], ", ".join(model["fallbacks"])]
        for model in listed
    ]
    columns = ["MODEL", "PROVIDER", "KIND", "PROVIDER'S MODEL", "FALLBACKS"]
    shown = len(columns) if falls_back else len(columns) - 1
    wraps = ["MODEL", "PROVIDER'S MODEL", "FALLBACKS"]
    cli.out.print_table(columns[:shown], [row[:shown] for row in rows], wraps=wraps)
    if cli.out.is_interactive:
        for line in (*_provider_notes(found), _OFFLINE_NOTE):
            cli.out.print_line(f"\n{line}")
    return None


def describe_configured_models(settings: LlmConfig) -> dict[str, Any]:
    """Return models, patterns and providers of the configuration, in the format of `GET /v1/llm`."""
    from paddock.llm.demo import add_demo_model

    discovered, ignored = settings.discovered_providers, list(settings.ignored_key_variables)
    settings = add_demo_model(settings)
    providers = [
        {
            "name": name,
            "kind": provider.kind,
            **({"baseUrl": provider.base_url} if provider.base_url else {}),
            **({"foundIn": discovered[name]} if name in discovered else {}),
        }
        for name, provider in settings.providers.items()
    ]
    models = [
        {"name": name, "provider": model.provider, "model": model.model or name, "fallbacks": list(model.fallbacks)}
        for name, model in settings.models.items()
    ]
    return {
        "providers": providers,
        "models": [model for model in models if "*" not in model["name"]],
        "patterns": [model for model in models if "*" in model["name"]],
        "ignoredVariables": ignored,
    }


def ignored_keys_text(variables: Sequence[str]) -> str:
    """Explain why keys in the environment are not used."""
    verb = "is" if len(variables) == 1 else "are"
    return f"{', '.join(variables)} {verb} set but ignored, because paddock.yaml names providers"


def _warn_of_ignored_keys(found: dict[str, Any]) -> None:
    if variables := found.get("ignoredVariables"):
        print_warning(f'{ignored_keys_text(variables)}; add a provider with key: "${{{variables[0]}}}"')


def _model_list_notes(found: dict[str, Any], providers: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield notes below the table of models."""
    if found.get("default") and len(found["models"]) > 1:
        yield f"Default model of chats: {found['default']}."
    for name, each in providers.items():
        guessed = any(model["provider"] == name and model.get("wellKnown") for model in found["models"])
        if guessed and each.get("listProblem") and not each.get("keyRefusedAt"):
            yield f"Provider {name} did not list its models: {each['listProblem']}. Well-known names are shown instead."
    patterns = [pattern["name"] for pattern in found["patterns"]]
    if "*" in patterns:
        yield "Any other model name can be requested too."
    elif patterns:
        yield f"Any other model name that matches {', '.join(patterns)} can be requested too."
    yield from _provider_notes(found)


def _provider_notes(found: dict[str, Any]) -> Iterator[str]:
    """Yield notes about discovered providers and providers without configured models."""
    providers = {provider["name"]: provider for provider in found["providers"]}
    offered = [f"{name} ({each['foundIn']})" for name, each in providers.items() if each.get("foundIn")]
    if offered:
        yield f"From the environment: {', '.join(offered)}. To use others, configure providers in paddock.yaml."
    used = {model["provider"] for model in [*found["models"], *found["patterns"]]}
    if unused := sorted(providers.keys() - used):
        yield f"Providers without configured models: {', '.join(unused)}. Request PROVIDER/MODEL."


async def ask_test_question(
    cli: CliContext,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Model name, as in `paddock llm list`.  [default: the default model]"),
    ] = None,
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="Question to ask.")] = _DEFAULT_PROMPT,
    stream: Annotated[bool, typer.Option("--stream", help="Stream the answer.")] = False,
) -> None:
    """Send a model a test question.

    The request goes through the running server, like those of programs. If the model does not answer, the exit code is
    1 and the provider's reason is printed.
    """
    from paddock.cli.llm.chat_completion import ask_model, find_archived_exchange

    live = stream and not cli.as_json
    async with cli.open_client() as client:
        if name is None and (name := (await client.get("/v1/llm")).get("default")) is None:
            raise UsageError("there is no default model; name one", hint="list models: paddock llm list")
        with _show_waiting(f"asking {name}", visible=not cli.as_json) as arrived:

            def show(piece: str) -> None:
                arrived()
                cli.out.print_text(piece)

            answer = await ask_model(client, name, prompt, stream=stream, show=show if live else None)
        exchange = await find_archived_exchange(client, answer.exchange) if answer.exchange else None
    if cli.as_json:
        document = {"model": name, "answer": answer.text, "firstByte": answer.first_byte, "total": answer.total}
        usage = answer.usage or (exchange or {}).get("usage")
        known = {key: value for key, value in exchange.items() if key not in _KNOWN_FIELDS} if exchange else None
        extra = {"usage": usage, "script": answer.script, "exchange": known}
        extra = {key: value for key, value in extra.items() if value is not None}
        return cli.out.print_json({**document, **extra})
    if not live:
        cli.out.print_text(answer.text)
    cli.out.print_line("" if answer.text else "(no text)")
    cli.out.print_line()
    return cli.out.print_facts(_answer_facts(answer, exchange))


@contextmanager
def _show_waiting(status_text: str, *, visible: bool) -> Iterator[Callable[[], None]]:
    """Show a status on a terminal until the yielded function is called or the block ends."""
    if not (visible and sys.stderr.isatty()):
        yield lambda: None
        return
    from rich.console import Console
    from rich.text import Text

    status = Console(stderr=True).status(Text(sanitize_text(status_text)))
    with status:
        yield status.stop


def _model_row(model: dict[str, Any], provider: dict[str, Any], falls_back: bool) -> list[str]:
    state = "key refused" if provider.get("keyRefusedAt") else "failing" if provider.get("failing") else "ready"
    if state == "ready" and provider.get("unreached"):
        state = "not reached, well-known name" if model.get("wellKnown") else "not reached"
    row = [model["name"], model["provider"], str(provider.get("kind", "")), model["model"], state]
    return [*row, ", ".join(model.get("fallbacks") or [])] if falls_back else row


def _answer_facts(answer: CompletionResult, exchange: dict[str, Any] | None) -> list[tuple[str, str]]:
    from paddock.cli.llm.exchange_text import format_answered_by, format_token_counts
    from paddock.cli.output.formatting import format_cost, format_latency

    facts: list[tuple[str, str]] = []
    if exchange:
        facts.append(("answered by", ("a fallback: " if _fell_back(exchange) else "") + format_answered_by(exchange)))
    elif answer.script:
        facts.append(("answered by", f"{answer.script}, a scripted model; no real model was used"))
    elif answer.recording:
        facts.append(("answered by", "a recording; no real model was used"))
    facts.append(("first byte", format_latency(answer.first_byte)))
    facts.append(("total", format_latency(answer.total)))
    known = exchange or {"usage": answer.usage}
    if known.get("usage"):
        facts.append(("tokens", format_token_counts(known)))
    if exchange:
        facts.append(("cost", format_cost(exchange.get("cost")) or "unknown; no price is configured"))
        facts.append(("exchange", f"{exchange['number']}  {exchange['id']}"))
        facts += [("note", note) for note in exchange.get("notes") or []]
    return facts


def _fell_back(exchange: dict[str, Any]) -> bool:
    """Return whether a fallback answered instead of the model's own provider."""
    route = exchange.get("route")
    return any(str(note).endswith(f" did not answer; asked {route}") for note in exchange.get("notes") or [])
