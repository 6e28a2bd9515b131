"""Options of screenshots, mapping of their pixels to the screen, scaling and encoding."""

from __future__ import annotations

from ..tool_result import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...http.http11 import IncomingRequest

MIME_TYPES = {"jpeg": "image/jpeg", "png": "image/png", "webp": "image/webp"}
MAX_PIXELS = 40_000_000


class ScreenCaptureOptions:
    """Region, scale and format of a screenshot."""

    __slots__ = ("format", "max_width", "pointer", "quality", "region", "scale")

    def __init__(
        self,
        format: str = "jpeg",
        quality: int = 80,
        scale: float = 1.0,
        max_width: int = 0,
        region: tuple[int, int, int, int] | None = None,
        pointer: bool = False,
    ) -> None:
        self.format = format
        self.quality = quality
        self.scale = scale
        self.max_width = max_width
        self.region = region
        self.pointer = pointer

    @property
    def key(self) -> tuple[object, ...]:
        return (self.format, self.quality, self.scale, self.max_width, self.region, self.pointer)

    @classmethod
    def from_query(cls, request: IncomingRequest) -> ScreenCaptureOptions:
        """Read the options from a request's query. Raises ApiError for an invalid one."""
        from ...errors import ApiError

        format = request.query("format", "jpeg").lower().replace("jpg", "jpeg")
        if format not in MIME_TYPES:
            raise ApiError(400, "MISSING_QUERY", f"format must be jpeg, png or webp, not {format!r}")
        quality = request.query_int("quality", 80) or 0
        if not 1 <= quality <= 100:
            raise ApiError(400, "MISSING_QUERY", "quality must be 1 to 100")
        try:
            scale = float(request.query("scale", "1"))
        except ValueError:
            scale = 0.0
        if not 0.01 <= scale <= 4:
            raise ApiError(400, "MISSING_QUERY", "scale must be a number from 0.01 to 4")
        region = None
        if request.query("region"):
            parts = request.query("region").split(",")
            if len(parts) != 4 or not all(part.strip().isdigit() and len(part) < 8 for part in parts):
                raise ApiError(400, "MISSING_QUERY", "region must be x,y,width,height in screen pixels")
            x, y, width, height = (int(part) for part in parts)
            region = (x, y, width, height)
        pointer = request.query("pointer") in ("1", "true", "yes")
        return cls(format, quality, scale, request.query_int("max_width", 0) or 0, region, pointer)


class ScreenArea:
    """A region of the screen scaled to a picture; maps the picture's pixels back to the screen."""

    __slots__ = ("height", "shown_height", "shown_width", "width", "x", "y")

    def __init__(self, options: ScreenCaptureOptions, screen_width: int, screen_height: int) -> None:
        self.x, self.y, self.width, self.height = options.region or (0, 0, screen_width, screen_height)
        inside = 0 <= self.x < screen_width and 0 <= self.y < screen_height
        if not inside or self.width < 1 or self.height < 1:
            wanted = f"{self.width}x{self.height} at {self.x}, {self.y}"
            raise ToolError(f"the region {wanted} is off the screen, which is {screen_width}x{screen_height}")
        self.width = min(self.width, screen_width - self.x)
        self.height = min(self.height, screen_height - self.y)
        scale = options.scale
        if options.max_width and self.width * scale > options.max_width:
            scale = options.max_width / self.width
        self.shown_width = max(1, round(self.width * scale))
        self.shown_height = max(1, round(self.height * scale))
        if self.shown_width * self.shown_height > MAX_PIXELS:
            raise ToolError(f"a picture of {self.shown_width}x{self.shown_height} is too large; use a smaller scale")

    def to_screen_point(self, x: float, y: float) -> tuple[int, int]:
        """Return the screen pixel under the centre of a picture pixel."""
        if not (0 <= x < self.shown_width and 0 <= y < self.shown_height):
            size = f"{self.shown_width}x{self.shown_height}"
            raise ToolError(f"{x:g}, {y:g} is outside the picture, which is {size} pixels")
        across = (x + 0.5) * self.width / self.shown_width
        down = (y + 0.5) * self.height / self.shown_height
        return self.x + min(self.width - 1, int(across)), self.y + min(self.height - 1, int(down))


def scale_image(image: Any, area: ScreenArea) -> Any:
    from PIL import Image

    size = (area.shown_width, area.shown_height)
    if image.size == size:
        return image
    if area.shown_width > area.width:
        return image.resize(size, Image.BICUBIC)
    return image.resize(size, Image.BILINEAR, reducing_gap=2.0)


def encode_image(image: Any, format: str, quality: int) -> bytes:
    from io import BytesIO

    buffer = BytesIO()
    if format == "jpeg":
        image.save(buffer, "JPEG", quality=min(quality, 95))
    elif format == "png":
        image.save(buffer, "PNG", compress_level=1)
    else:
        image.save(buffer, "WEBP", quality=quality, method=0)
    return buffer.getvalue()
