"""Parse durations such as `90`, `15m` or `1h30m`."""

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text: str) -> int:
    """Return the seconds of a duration."""
    total, number = 0, ""
    for character in text.strip():
        if character.isdigit():
            number += character
        elif number and character in UNITS:
            total = int(number) * UNITS[character]
            number = ""
        else:
            raise ValueError(f"{text!r} is not a duration")
    return total + int(number or 0)
