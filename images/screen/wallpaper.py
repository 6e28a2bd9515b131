"""Draws the wallpaper: a quiet morning over the hills of a paddock."""

from __future__ import annotations

import math
import random
import sys

from PIL import Image, ImageChops, ImageDraw, ImageFilter

WIDTH, HEIGHT = 1280, 800
SUPERSAMPLING = 3  # The picture is drawn this many times larger and scaled down, for smooth edges.
SKY = ((0.0, (47, 96, 138)), (0.35, (116, 167, 190)), (0.6, (214, 223, 205)), (0.72, (247, 226, 188)))
HILLS = (
    # Height of the ridge, its waves (length, height, offset), colours at the ridge and at its foot.
    (0.600, ((1.10, 0.040, 0.3), (0.37, 0.012, 2.1)), (139, 172, 160), (170, 193, 168)),
    (0.665, ((0.85, 0.045, 2.4), (0.29, 0.010, 0.7)), (100, 148, 122), (140, 174, 136)),
    (0.745, ((1.30, 0.050, 4.4), (0.45, 0.012, 1.2)), (70, 122, 92), (104, 152, 104)),
    (0.850, ((1.70, 0.045, 0.9), (0.60, 0.010, 3.0)), (44, 92, 70), (64, 116, 78)),
)


def gradient_column(stops: tuple[tuple[float, tuple[int, int, int]], ...], height: int) -> Image.Image:
    """One column of colours, from the top to the bottom."""
    column = Image.new("RGB", (1, height))
    for row in range(height):
        position = row / (height - 1)
        before = max((stop for stop in stops if stop[0] <= position), default=stops[0], key=lambda stop: stop[0])
        after = min((stop for stop in stops if stop[0] > position), default=stops[-1], key=lambda stop: stop[0])
        share = 0.0 if after[0] <= before[0] else (position - before[0]) / (after[0] - before[0])
        share = min(1.0, max(0.0, share))
        column.putpixel((0, row), tuple(round(a + (b - a) * share) for a, b in zip(before[1], after[1])))
    return column


def ridge_height(level: float, waves: tuple[tuple[float, float, float], ...], position: float) -> float:
    """Return the height of a ridge (0 is the top) at a position between left (0) and right (1)."""
    return level + sum(height * math.sin(2 * math.pi * position / length + offset) for length, height, offset in waves)


def draw_sun(picture: Image.Image) -> Image.Image:
    """A low sun behind the hills, and the light around it."""
    light = Image.new("L", picture.size, 0)
    draw = ImageDraw.Draw(light)
    x, y = WIDTH * SUPERSAMPLING * 0.69, HEIGHT * SUPERSAMPLING * 0.515
    for radius, strength in ((330, 26), (230, 44), (140, 66), (80, 92)):
        reach = radius * SUPERSAMPLING
        draw.ellipse((x - reach, y - reach, x + reach, y + reach), fill=strength)
    light = light.resize((WIDTH // 4, HEIGHT // 4)).filter(ImageFilter.GaussianBlur(18)).resize(picture.size)
    warm = Image.new("RGB", picture.size, (255, 240, 206))
    picture = Image.composite(warm, picture, light)
    radius = 34 * SUPERSAMPLING
    ImageDraw.Draw(picture).ellipse((x - radius, y - radius, x + radius, y + radius), fill=(255, 246, 224))
    return picture


def draw_hill(
    picture: Image.Image,
    level: float,
    waves: tuple[tuple[float, float, float], ...],
    top: tuple[int, int, int],
    foot: tuple[int, int, int],
) -> None:
    width, height = picture.size
    line = [(x, ridge_height(level, waves, x / width) * height) for x in range(0, width + SUPERSAMPLING, SUPERSAMPLING)]
    mask = Image.new("L", picture.size, 0)
    ImageDraw.Draw(mask).polygon([*line, (width, height), (0, height)], fill=255)
    highest = int(min(y for _, y in line))
    colours = gradient_column(((0.0, top), (1.0, foot)), height - highest).resize((width, height - highest))
    sheet = Image.new("RGB", picture.size)
    sheet.paste(colours, (0, highest))
    picture.paste(sheet, mask=mask)


def draw_fence(picture: Image.Image) -> None:
    """Posts and two rails along the third hill."""
    width, height = picture.size
    level, waves, _, _ = HILLS[2]
    draw = ImageDraw.Draw(picture)
    colour = (52, 88, 70)
    spacing = 46 * SUPERSAMPLING

    def foot(x: float) -> float:
        return (ridge_height(level, waves, x / width) + 0.012) * height

    for rail in (10, 18):
        line = [(x, foot(x) - rail * SUPERSAMPLING) for x in range(0, width + 1, spacing // 4)]
        draw.line(line, fill=colour, width=round(1.6 * SUPERSAMPLING), joint="curve")
    for x in range(spacing // 2, width, spacing):
        half = 1.3 * SUPERSAMPLING
        draw.rectangle((x - half, foot(x) - 23 * SUPERSAMPLING, x + half, foot(x)), fill=colour)


def draw_wallpaper() -> Image.Image:
    size = (WIDTH * SUPERSAMPLING, HEIGHT * SUPERSAMPLING)
    picture = draw_sun(gradient_column(SKY, size[1]).resize(size))
    for number, (level, waves, top, foot) in enumerate(HILLS):
        draw_hill(picture, level, waves, top, foot)
        if number == 2:
            draw_fence(picture)
    picture = picture.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
    # A little noise, always the same, so that no bands show in the sky.
    source = random.Random(7)
    noise = Image.frombytes("L", picture.size, bytes(source.choices((0, 1, 2), k=WIDTH * HEIGHT)))
    return ImageChops.add(picture, Image.merge("RGB", (noise, noise, noise)))


if __name__ == "__main__":
    draw_wallpaper().save(sys.argv[1], quality=90)
