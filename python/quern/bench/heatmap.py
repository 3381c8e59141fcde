# SPDX-License-Identifier: Apache-2.0
"""Rows x columns as a picture: for each direction a panel, each cell the rate of quern's op as a share of what a copy
of as many bytes reached in the same rounds, with the best of the others' shares under it. Of lines that `python -m
quern.bench swiglu --json` wrote; of a shape measured more than once the last one counts."""

from __future__ import annotations

import html

CELL, ROW, LEFT, TOP, GAP = 96, 40, 84, 92, 56
_INK, _FAINT = "#1b1f24", "#59636e"
_LOW, _EVEN, _HIGH = (203, 75, 60), (246, 244, 238), (46, 125, 107)  # 0.7 of a copy and less, as fast, 1.3 and more


class HeatmapError(ValueError):
    """The lines hold nothing that could be drawn."""


def _colour(share: float) -> str:
    t = max(-1.0, min(1.0, (share - 1.0) / 0.3))
    end = _HIGH if t > 0 else _LOW
    return "#" + "".join(f"{round(m + abs(t) * (e - m)):02x}" for m, e in zip(_EVEN, end))


def _best_other(line: dict) -> tuple[str, float] | None:
    """The fastest right one of the others, and the share it comes to."""
    right = [p for p in line["peers"] if not p["absent"] and p["check"]["right"]]
    if not right:
        return None
    best = min(right, key=lambda p: p["step"]["median_ns"])
    return best["name"], line["copy"]["median_ns"] / best["step"]["median_ns"]


def _text(x: float, y: float, words: str, size: int = 12, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" {more}>{html.escape(words)}</text>'


def _panel(x: float, direction: str, cells: dict, rows: list[int], cols: list[int]) -> list[str]:
    out = [_text(x + CELL * len(cols) / 2, TOP - 36, direction, 14, more='font-weight="600"')]
    out += [_text(x + CELL * (k + 0.5), TOP - 10, str(col), more=f'fill="{_FAINT}"') for k, col in enumerate(cols)]
    for j, row in enumerate(rows):
        y = TOP + ROW * j
        out.append(_text(x - 8, y + ROW / 2 + 4, str(row), anchor="end", more=f'fill="{_FAINT}"'))
        for k, col in enumerate(cols):
            line = cells.get((row, col))
            if line is None:
                continue
            share, other = line["share_of_copy"]["ratio"], _best_other(line)
            place = f'x="{x + CELL * k + 1:g}" y="{y + 1}" width="{CELL - 2}" height="{ROW - 2}"'
            out.append(f'<rect {place} rx="3" fill="{_colour(share)}"/>')
            out.append(_text(x + CELL * (k + 0.5), y + 17, f"{share:.2f}", 13, more='font-weight="600"'))
            if other:
                words = f"{other[0]} {other[1]:.2f}"
                out.append(_text(x + CELL * (k + 0.5), y + 31, words, 10, more=f'fill="{_FAINT}"'))
    return out


def picture(lines: list[dict]) -> str:
    """The SVG as text. Multipliers other than 1 are left out."""
    of = [
        line
        for line in lines
        if line.get("schema") == "quern swiglu 1" and line.get("gate_multiplier") == 1.0 and "share_of_copy" in line
    ]
    if not of:
        raise HeatmapError("no line of them is a measurement of `python -m quern.bench swiglu`")
    directions = list(dict.fromkeys(line["direction"] for line in of))
    rows, cols = (sorted({line[key] for line in of}) for key in ("rows", "cols"))
    wide = LEFT + CELL * len(cols)
    width, height = wide * len(directions) + GAP, TOP + ROW * len(rows) + 48
    last = of[-1]
    title = f"SwiGLU, {last['type']}, on {last['machine']['device']}: rate over that of a copy of as many bytes"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif" fill="{_INK}"><title>{html.escape(title)}</title>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(LEFT, 28, title, 16, "start", 'font-weight="600"'),
    ]
    for place, direction in enumerate(directions):
        cells = {(line["rows"], line["cols"]): line for line in of if line["direction"] == direction}
        out += _panel(LEFT + wide * place, direction, cells, rows, cols)
    words = "left: rows, above: columns; large: quern, small: the fastest of the others; same run, taken in turns"
    out.append(_text(LEFT, height - 18, words, 12, "start", f'fill="{_FAINT}"'))
    return "\n".join([*out, "</svg>\n"])


def draw(path: str, lines: list[dict]) -> None:
    text = picture(lines)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
