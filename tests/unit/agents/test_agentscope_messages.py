"""Messages that go through AgentScope come back as they were."""

from __future__ import annotations

import json
from typing import Any

from agentscope.state import AgentState
from hypothesis import given
from hypothesis import strategies as st

from paddock.agents.engines.agentscope.agentscope_messages import to_agentscope_messages, to_chat_messages
from paddock.agents.engines.base import FILE_SCHEME

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
PICTURE = {"type": "image_url", "image_url": {"url": FILE_SCHEME + "ef" * 32}}
CONTENTS = TEXTS | st.lists(TEXTS, max_size=2).map(
    lambda texts: [*({"type": "text", "text": text} for text in texts), PICTURE]
)


@st.composite
def assistant_messages(draw: st.DrawFn, numbers: Any = None) -> list[dict[str, Any]]:
    """Generate a reply with its calls and their results."""
    names = draw(st.lists(TEXTS, max_size=3))
    text = draw(TEXTS) if not names else draw(st.none() | TEXTS)
    assistant_message: dict[str, Any] = {"role": "assistant", "content": text}
    if not names:
        return [assistant_message]
    assistant_message["tool_calls"] = [
        {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps({"n": n})}}
        for n, name in enumerate(names)
    ]
    results = [
        {"role": "tool", "tool_call_id": f"call_{n}", "name": name, "content": draw(CONTENTS | st.just(""))}
        for n, name in enumerate(names)
    ]
    return [assistant_message, *results]


@given(
    st.lists(assistant_messages() | CONTENTS.map(lambda content: [{"role": "user", "content": content}]), max_size=6)
)
def test_messages_survive_conversion_and_storage(groups: list[list[dict[str, Any]]]) -> None:
    messages = [message for each in groups for message in each]
    state = AgentState(context=to_agentscope_messages(messages))
    assert to_chat_messages(AgentState.model_validate_json(state.model_dump_json()).context) == messages
