"""Scripts of the scripted model, one for each test case of the agent programs."""

from __future__ import annotations

from typing import Any

FIRST_FILE = "one\ttwo 'three' \"four\"\n"
"""Content of the first file: characters that are easily broken by shell or JSON quoting."""
SECOND_FILE = "copied: größer ≠ kleiner\n"
FINAL_ANSWER = "Both files are in place."
UNEXPECTED_ANSWER = "This was not to be said."

SCRIPTS: dict[str, dict[str, Any]] = {
    "work": {
        "turns": [
            {
                "do": [
                    {"think": "A file is wanted, so I look around first."},
                    {"say": "I look around and write the first file."},
                    {"shell": "printf 'one\\ttwo '\\''three'\\'' \"four\"\\n' > first.txt && echo first-is-there"},
                ]
            },
            {
                "when": {"tool": "first-is-there"},
                "do": [
                    {"say": "Now the second."},
                    {"write_file": {"path": "second.txt", "content": SECOND_FILE}},
                ],
            },
            {
                "when": {"tool": "."},
                # One line: on a busy machine qwen's terminal may lose all output after the first line.
                "do": [{"shell": "sed 's/$/ second-is-there/' second.txt"}],
            },
            {"when": {"tool": "(?s)größer ≠ kleiner.*second-is-there"}, "do": [{"say": FINAL_ANSWER}]},
        ],
        "otherwise": {"say": UNEXPECTED_ANSWER},
    },
    "hello": {"turns": [{"say": "Hello."}], "otherwise": {"say": "Hello."}},
    "weather": {
        "turns": [
            {
                "do": [
                    {"think": "Two cities, so two calls."},
                    {"say": "I look it up."},
                    {"call": {"tool": "get_weather", "arguments": {"city": "Oslo"}}},
                    {"call": {"tool": "get_weather", "arguments": {"city": "São Paulo"}}},
                ]
            },
            {
                "when": {"tool": "(?s)Oslo: 7 degrees.*São Paulo: 7 degrees"},
                "do": [{"call": {"tool": "get_weather", "arguments": {"city": "Rome"}}}],
            },
            {
                "when": {"tool": "Rome: 7 degrees"},
                "do": [
                    {"say": "It is 7 degrees everywhere."},
                    {"usage": {"input": 120, "output": 30, "cache_read": 100, "reasoning": 5}},
                ],
            },
        ],
        "otherwise": {"say": UNEXPECTED_ANSWER},
    },
    "look": {
        "turns": [
            {
                "do": [
                    {"think": "I have to look."},
                    {"say": "I look up."},
                    {"call": {"tool": "look", "arguments": {"where": "above"}}},
                ]
            },
            {"when": {"tool": "a tree above"}, "do": [{"say": "I see a tree."}]},
            {"when": {"prompt": "Which kind"}, "do": [{"say": "It is an oak."}]},
        ],
        "otherwise": {"say": UNEXPECTED_ANSWER},
    },
    "picture": {
        "turns": [
            {"do": [{"call": {"tool": "take_picture"}}]},
            {"do": [{"say": "A grey dot."}]},
        ],
        "otherwise": {"say": UNEXPECTED_ANSWER},
    },
    "form": {"turns": [{"say": '{"city": "Oslo", "degrees": 7}'}]},
    "busy": {"turns": [{"fail": {"status": 429, "retry_after": 7, "times": "always"}}, {"say": UNEXPECTED_ANSWER}]},
    "cut": {"turns": [[{"say": "This answer has a beginning and"}, {"drop": {"times": "always"}}]]},
}
