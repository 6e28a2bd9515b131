"""Scales and converts pictures of a phone's screen."""

from __future__ import annotations

from ..tool_result import ToolError

MAX_PIXELS = 100_000_000
PNG = b"\x89PNG\r\n\x1a\n"


def convert_phone_picture(
    data: bytes, mime: str, scale: float, format: str, quality: int
) -> tuple[bytes, str, int, int]:
    """Return the picture scaled and in `format`, its MIME type, width and height."""
    if scale == 1 and mime == f"image/{format}" == "image/png" and data.startswith(PNG):
        return data, mime, int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    import io

    try:
        from PIL import Image
    except ImportError:
        raise ToolError("scaling needs Pillow, which this image lacks; use scale 1 and format png") from None
    try:
        with Image.open(io.BytesIO(data)) as picture:
            width, height = picture.size
            if width * height > MAX_PIXELS:
                raise ToolError(f"the phone's picture is too large: {width}x{height}")
            # Drop the alpha channel.
            converted = picture.convert("RGB")
    except (OSError, ValueError, SyntaxError):
        raise ToolError("the phone returned an unreadable picture; try again") from None
    if scale != 1:
        converted = converted.resize(
            (max(1, round(width * scale)), max(1, round(height * scale))), Image.Resampling.LANCZOS
        )
    out = io.BytesIO()
    if format == "jpeg":
        converted.save(out, "JPEG", quality=quality)
    else:
        converted.save(out, "PNG", compress_level=1)
    return (out.getvalue(), f"image/{format}", *converted.size)
