"""`paddock llm export`: writes conversations as JSON lines."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.llm import exchange_filters


def register_commands(models: typer.Typer) -> None:
    register_command(
        models,
        "export",
        server=True,
        examples="""
            paddock llm export -o conversations.jsonl
            paddock llm export --sandbox 3f2a --form anthropic
            paddock llm export --since 7d --outcome ok | jq -c .messages
        """,
    )(export_conversations)


async def export_conversations(
    cli: CliContext,
    sandbox: exchange_filters.SandboxOption = None,
    run: exchange_filters.RunOption = None,
    session: exchange_filters.SessionOption = None,
    model: exchange_filters.ModelOption = None,
    outcome: exchange_filters.OutcomeOption = None,
    since: exchange_filters.SinceOption = None,
    until: exchange_filters.UntilOption = None,
    search: exchange_filters.SearchOption = None,
    form: Annotated[
        Literal["openai", "anthropic"], typer.Option(metavar="openai|anthropic", help="Message format.")
    ] = "openai",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File to write.  [default: standard output]"),
    ] = None,
) -> None:
    """Export conversations as JSON lines.

    Each line is one conversation, for training, evaluation and other tools. Their number is printed on standard error.
    A file is written atomically.
    """
    from paddock.cli.output.atomic_file import open_atomic_file, show_running_count

    lines = 0
    async with cli.open_read_client() as client:
        query = await exchange_filters.build_exchange_query(
            client,
            sandbox=sandbox,
            run=run,
            session=session,
            model=model,
            outcome=outcome,
            since=since,
            until=until,
            search=search,
        )
        with (
            open_atomic_file(output) if output else nullcontext(sys.stdout.buffer) as file,
            # On standard output, the lines themselves show the progress.
            show_running_count("conversations") if output else nullcontext(lambda _: None) as show,
        ):
            async with client.request("GET", "/v1/exchanges/export", params={**query, "form": form}) as answer:
                async for piece in answer.content.iter_any():
                    file.write(piece)
                    lines += piece.count(b"\n")
                    show(lines)
            file.flush()
    if cli.as_json and output:
        return cli.out.print_json({"file": str(output), "conversations": lines})
    file_note = f" in {output}" if output else ""
    sys.stderr.write(f"{lines:,} {'conversation' if lines == 1 else 'conversations'}{file_note}\n")
    return None
