"""Draws the wallpaper: a quiet morning over the hills of a paddock."""

from __future__ import annotations

import math
import random
import sys

from PIL import Image, ImageChops, ImageDraw, ImageFilter

WIDTH, HEIGHT = 1280, 800
FINE = 3  # Drawn this many times larger and made smaller again, for smooth edges.
SKY = ((0.0, (47, 96, 138)), (0.35, (116, 167, 190)), (0.6, (214, 223, 205)), (0.72, (247, 226, 188)))
HILLS = (
    # Height of the ridge, its waves (length, height, offset), colours at the ridge and at its foot.
    (0.600, ((1.10, 0.040, 0.3), (0.37, 0.012, 2.1)), (139, 172, 160), (170, 193, 168)),
    (0.665, ((0.85, 0.045, 2.4), (0.29, 0.010, 0.7)), (100, 148, 122), (140, 174, 136)),
    (0.745, ((1.30, 0.050, 4.4), (0.45, 0.012, 1.2)), (70, 122, 92), (104, 152, 104)),
    (0.850, ((1.70, 0.045, 0.9), (0.60, 0.010, 3.0)), (44, 92, 70), (64, 116, 78)),
)


def gradient(stops: tuple[tuple[float, tuple[int, int, int]], ...], height: int) -> Image.Image:
    """One column of colours, from the top to the bottom."""
    column = Image.new("RGB", (1, height))
    for row in range(height):
        place = row / (height - 1)
        before = max((stop for stop in stops if stop[0] <= place), default=stops[0], key=lambda stop: stop[0])
        after = min((stop for stop in stops if stop[0] > place), default=stops[-1], key=lambda stop: stop[0])
        share = 0.0 if after[0] <= before[0] else (place - before[0]) / (after[0] - before[0])
        share = min(1.0, max(0.0, share))
        column.putpixel((0, row), tuple(round(a + (b - a) * share) for a, b in zip(before[1], after[1])))
    return column


def ridge(level: float, waves: tuple[tuple[float, float, float], ...], place: float) -> float:
    """How far down the picture a hill begins, at a place between left (0) and right (1)."""
    return level + sum(height * math.sin(2 * math.pi * place / length + offset) for length, height, offset in waves)


def draw_sun(picture: Image.Image) -> Image.Image:
    """A low sun behind the hills, and the light around it."""
    light = Image.new("L", picture.size, 0)
    pen = ImageDraw.Draw(light)
    x, y = WIDTH * FINE * 0.69, HEIGHT * FINE * 0.515
    for radius, strength in ((330, 26), (230, 44), (140, 66), (80, 92)):
        pen.ellipse((x - radius * FINE, y - radius * FINE, x + radius * FINE, y + radius * FINE), fill=strength)
    light = light.resize((WIDTH // 4, HEIGHT // 4)).filter(ImageFilter.GaussianBlur(18)).resize(picture.size)
    warm = Image.new("RGB", picture.size, (255, 240, 206))
    picture = Image.composite(warm, picture, light)
    radius = 34 * FINE
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
    line = [(x, ridge(level, waves, x / width) * height) for x in range(0, width + FINE, FINE)]
    mask = Image.new("L", picture.size, 0)
    ImageDraw.Draw(mask).polygon([*line, (width, height), (0, height)], fill=255)
    highest = int(min(y for _, y in line))
    colours = gradient(((0.0, top), (1.0, foot)), height - highest).resize((width, height - highest))
    sheet = Image.new("RGB", picture.size)
    sheet.paste(colours, (0, highest))
    picture.paste(sheet, mask=mask)


def draw_fence(picture: Image.Image) -> None:
    """Posts and two rails along the third hill."""
    width, height = picture.size
    level, waves, _, _ = HILLS[2]
    pen = ImageDraw.Draw(picture)
    colour = (52, 88, 70)
    spacing = 46 * FINE

    def foot(x: float) -> float:
        return (ridge(level, waves, x / width) + 0.012) * height

    for rail in (10, 18):
        line = [(x, foot(x) - rail * FINE) for x in range(0, width + 1, spacing // 4)]
        pen.line(line, fill=colour, width=round(1.6 * FINE), joint="curve")
    for x in range(spacing // 2, width, spacing):
        half = 1.3 * FINE
        pen.rectangle((x - half, foot(x) - 23 * FINE, x + half, foot(x)), fill=colour)


def draw() -> Image.Image:
    size = (WIDTH * FINE, HEIGHT * FINE)
    picture = draw_sun(gradient(SKY, size[1]).resize(size))
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
    draw().save(sys.argv[1], quality=90)
