"""Screenshot points map to the screen for every scale and region."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.inside.tools.desktop.screen_images import ScreenArea, ScreenCaptureOptions
from paddock.inside.tools.tool_result import ToolError


def test_full_picture_covers_the_screen() -> None:
    area = ScreenArea(ScreenCaptureOptions(), 1280, 800)
    assert (area.shown_width, area.shown_height) == (1280, 800)
    assert area.to_screen_point(0, 0) == (0, 0) and area.to_screen_point(1279, 799) == (1279, 799)


def test_scaled_pixel_maps_to_its_middle() -> None:
    area = ScreenArea(ScreenCaptureOptions(max_width=640), 1280, 800)
    assert (area.shown_width, area.shown_height) == (640, 400)
    assert area.to_screen_point(320, 200) == (641, 401) and area.to_screen_point(639, 399) == (1279, 799)


def test_enlarged_region_maps_into_the_region() -> None:
    area = ScreenArea(ScreenCaptureOptions(scale=4, region=(100, 200, 50, 20)), 1280, 800)
    assert (area.shown_width, area.shown_height) == (200, 80)
    assert area.to_screen_point(0, 0) == (100, 200) and area.to_screen_point(199, 79) == (149, 219)


def test_region_is_clipped_to_the_screen() -> None:
    area = ScreenArea(ScreenCaptureOptions(region=(1200, 700, 500, 500)), 1280, 800)
    assert (area.width, area.height) == (80, 100)


@pytest.mark.parametrize("region", [(1280, 0, 1, 1), (0, 800, 1, 1), (0, 0, 0, 5)])
def test_region_off_the_screen_fails_with_the_screen_size(region: tuple[int, int, int, int]) -> None:
    with pytest.raises(ToolError, match="off the screen, which is 1280x800"):
        ScreenArea(ScreenCaptureOptions(region=region), 1280, 800)


@pytest.mark.parametrize("point", [(-1, 0), (0, -0.5), (640, 0), (0, 400), (float("nan"), 0)])
def test_point_outside_the_picture_fails_with_the_picture_size(point: tuple[float, float]) -> None:
    with pytest.raises(ToolError, match="outside the picture, which is 640x400"):
        ScreenArea(ScreenCaptureOptions(scale=0.5), 1280, 800).to_screen_point(*point)


@given(
    st.floats(0.05, 4), st.integers(0, 1279), st.integers(0, 799), st.integers(1, 1300), st.integers(1, 900), st.data()
)
def test_every_pixel_maps_into_its_region(
    scale: float, x: int, y: int, width: int, height: int, data: st.DataObject
) -> None:
    area = ScreenArea(ScreenCaptureOptions(scale=scale, region=(x, y, width, height)), 1280, 800)
    across, down = area.to_screen_point(
        data.draw(st.integers(0, area.shown_width - 1)), data.draw(st.integers(0, area.shown_height - 1))
    )
    assert x <= across < min(1280, x + width) and y <= down < min(800, y + height)
