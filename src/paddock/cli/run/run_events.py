"""Follows the events of runs until they end, across server restarts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from paddock.cli.connection.reconnecting_client import ReconnectingClient, follow_server_events
from paddock.cli.connection.server_client import ServerClient
from paddock.cli.run.progress_views import RunView
from paddock.cli.run.run_progress import ENDED_STATES, SUCCEEDED_STATE, RunProgressState


async def follow_run_events(reach: ReconnectingClient, run_id: str, after: int = 0) -> AsyncIterator[dict[str, Any]]:
    """Yield a run's events until it ends, without gaps or duplicates."""
    async with aclosing(follow_server_events(reach, f"/v1/runs/{quote(run_id, safe='')}/events", after)) as events:
        async for event in events:
            yield event
            if event.get("type") == "run.ended":
                return


async def list_run_events(client: ServerClient, run_id: str) -> AsyncIterator[dict[str, Any]]:
    """Yield a run's events so far."""
    path, after = f"/v1/runs/{quote(run_id, safe='')}/events", 0
    while True:
        page = await client.request_json(
            "GET", path, params={"after": str(after)}, headers={"Accept": "application/json"}
        )
        for event in page["items"]:
            yield event
        if not page["items"]:
            return
        after = int(page["next"])


async def find_final_agent_messages(client: ServerClient, run: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the agent's last error and message of an unsuccessful run, latest first."""
    progress = RunProgressState(str(run["name"]), str(run["id"]))
    if run.get("agent") and run.get("state") in ENDED_STATES and run.get("state") != SUCCEEDED_STATE:
        async for event in follow_run_events(ReconnectingClient(client), progress.id):
            progress.apply_event(event)
    return progress.final_messages


async def watch_run(reach: ReconnectingClient, run: RunProgressState, view: RunView) -> None:
    """Show a run's events in a view until the run ends."""
    async for event in follow_run_events(reach, run.id, run.last_event_number):
        view.show_event(run, event, run.apply_event(event))
