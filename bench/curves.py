"""A curve as an SVG, and rows as a table: no library, nothing but text."""

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

Points = list[tuple[float, float]]

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 36, 44
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#666666")
"""Told apart by everybody (Okabe and Ito, 2008)."""


def curve(title: str, x: str, y: str, lines: dict[str, Points], *, log_x: bool = False) -> str:
    """Lines by their names, on a logarithmic y axis.

    Args:
        title: Above.
        x: Of the axis.
        y: Of the axis.
        lines: Name to points; y above 0.
        log_x: Whether x is logarithmic too.
    """
    xs = [point[0] for points in lines.values() for point in points]
    ys = [point[1] for points in lines.values() for point in points]
    low_y, high_y = math.floor(math.log10(min(ys)) * 2) / 2, math.ceil(math.log10(max(ys)) * 2) / 2
    low_x, high_x = (_scaled(limit, log=log_x) for limit in (min(xs), max(xs)))

    def place(point: tuple[float, float]) -> tuple[float, float]:
        part_x = (_scaled(point[0], log=log_x) - low_x) / ((high_x - low_x) or 1)
        part_y = (math.log10(point[1]) - low_y) / ((high_y - low_y) or 1)
        return LEFT + part_x * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - part_y * (HEIGHT - TOP - BOTTOM)

    parts = [_text(LEFT, 20, title, weight="bold"), _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x, anchor="middle")]
    parts.append(f'<g transform="rotate(-90 14 {HEIGHT / 2})">{_text(14, HEIGHT / 2, y, anchor="middle")}</g>')
    for tick in _ticks(low_y, high_y):
        height = place((min(xs), tick))[1]
        parts.append(f'<path d="M{LEFT} {height:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 6, height + 4, f"{tick:g}", anchor="end"))
    parts += [
        _text(place((at, 10**low_y))[0], HEIGHT - BOTTOM + 16, f"{at:g}", anchor="middle") for at in sorted({*xs})
    ]
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [place(point) for point in points]
        path = " ".join(f"{across:.1f},{down:.1f}" for across, down in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{across:.1f}" cy="{down:.1f}" r="3" fill="{colour}"/>' for across, down in places]
        row = TOP + 8 + 18 * number
        parts.append(f'<path d="M{WIDTH - RIGHT + 12} {row}h18" stroke="{colour}" stroke-width="3"/>')
        parts.append(_text(WIDTH - RIGHT + 36, row + 4, name))
    body = "\n".join(parts)
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows as a Markdown table."""
    lines = [head, ["--"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def _scaled(value: float, *, log: bool) -> float:
    return math.log10(value) if log else value


def _ticks(low: float, high: float) -> list[float]:
    """1, 3, 10, 30 ... between two logarithms."""
    tens = range(math.floor(low), math.ceil(high) + 1)
    ticks = [first * 10.0**ten for ten in tens for first in (1, 3)]
    return [tick for tick in ticks if low - 1e-9 <= math.log10(tick) <= high + 1e-9]


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'
