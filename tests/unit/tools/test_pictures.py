"""Points in a picture lead back to the screen, whatever its scale and region."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.inside.tools.pictures import Area, Options
from paddock.inside.tools.results import ToolError


def test_a_full_picture_is_the_screen() -> None:
    area = Area(Options(), 1280, 800)
    assert (area.shown_width, area.shown_height) == (1280, 800)
    assert area.on_screen(0, 0) == (0, 0) and area.on_screen(1279, 799) == (1279, 799)


def test_a_small_picture_means_the_middle_of_its_pixels() -> None:
    area = Area(Options(max_width=640), 1280, 800)
    assert (area.shown_width, area.shown_height) == (640, 400)
    assert area.on_screen(320, 200) == (641, 401) and area.on_screen(639, 399) == (1279, 799)


def test_a_region_that_is_enlarged_leads_into_that_region() -> None:
    area = Area(Options(scale=4, region=(100, 200, 50, 20)), 1280, 800)
    assert (area.shown_width, area.shown_height) == (200, 80)
    assert area.on_screen(0, 0) == (100, 200) and area.on_screen(199, 79) == (149, 219)


def test_a_region_that_sticks_out_is_cut_to_the_screen() -> None:
    area = Area(Options(region=(1200, 700, 500, 500)), 1280, 800)
    assert (area.width, area.height) == (80, 100)


@pytest.mark.parametrize("region", [(1280, 0, 1, 1), (0, 800, 1, 1), (0, 0, 0, 5)])
def test_a_region_off_the_screen_is_an_error_that_names_its_size(region: tuple[int, int, int, int]) -> None:
    with pytest.raises(ToolError, match="off the screen, which is 1280x800"):
        Area(Options(region=region), 1280, 800)


@pytest.mark.parametrize("point", [(-1, 0), (0, -0.5), (640, 0), (0, 400), (float("nan"), 0)])
def test_a_point_outside_the_picture_is_an_error_that_names_its_size(point: tuple[float, float]) -> None:
    with pytest.raises(ToolError, match="outside the picture, which is 640x400"):
        Area(Options(scale=0.5), 1280, 800).on_screen(*point)


@given(
    st.floats(0.05, 4), st.integers(0, 1279), st.integers(0, 799), st.integers(1, 1300), st.integers(1, 900), st.data()
)
def test_every_pixel_of_every_picture_is_within_its_region(
    scale: float, x: int, y: int, width: int, height: int, data: st.DataObject
) -> None:
    area = Area(Options(scale=scale, region=(x, y, width, height)), 1280, 800)
    across, down = area.on_screen(
        data.draw(st.integers(0, area.shown_width - 1)), data.draw(st.integers(0, area.shown_height - 1))
    )
    assert x <= across < min(1280, x + width) and y <= down < min(800, y + height)
