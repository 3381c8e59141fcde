# SPDX-License-Identifier: Apache-2.0
"""A measurement as people read it, from its line of JSON alone."""

from __future__ import annotations

_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))


def _unit(ns: float) -> tuple[float, str]:
    return next((unit for unit in _UNITS if ns >= unit[0]), _UNITS[-1])


def _digits(x: float) -> int:
    return 0 if x >= 1000 else 1 if x >= 100 else 2 if x >= 10 else 3


def duration(ns: float) -> str:
    """Four digits: "52.10 ms"."""
    size, name = _unit(ns)
    return f"{ns / size:.{_digits(ns / size)}f} {name}"


def _interval(low: float | None, high: float | None, digits: int) -> str:
    return "(too few samples)" if low is None or high is None else f"[{low:.{digits}f}, {high:.{digits}f}]"


def _time_interval(series: dict) -> str:
    size = _unit(series["median_ns"])[0]
    low, high = series["interval_ns"]
    return _interval(low and low / size, high and high / size, _digits(series["median_ns"] / size))


def _row(apart: bool, name: str, time: str, interval: str, *cells: str) -> str:
    """apart: there are times of many steps and of the host; on a processor there are none."""
    of_rate, of_host, rest = cells[:2], cells[2:5] if apart else (), cells[5:]
    laid = [f"{name:<28}", f"{time:>11}", f"{interval:<20}", *(f"{cell:>8}" for cell in of_rate)]
    return "  " + "  ".join([*laid, *(f"{cell:>12}" for cell in of_host), *rest]).rstrip()


def _figures(entry: dict, step: dict, brackets: bool) -> list[str]:
    median = duration(step["median_ns"])
    apart = [duration(entry[what]["median_ns"]) if what in entry else "-" for what in ("wall", "host", "host_moved")]
    if brackets:
        return [f"({median})", "", "", "", *(f"({cell})" if cell != "-" else cell for cell in apart)]
    rate = step["gbps"]
    share = f"{100 * entry['share']['ratio']:.1f}%"
    return [median, _time_interval(step), f"{rate:.{0 if rate >= 100 else 1}f}", share, *apart]


def _judgement(peer: dict) -> str:
    if peer["check"]["wrong"]:
        return "WRONG: " + peer["check"]["wrong"]
    ratio, (low, high) = peer["speedup"]["ratio"], peer["speedup"]["interval"]
    word = "another op" if peer["other_op"] else peer["verdict"]
    return f"{ratio:.2f}x {_interval(low, high, 2)} {word}"


def text(line: dict) -> str:
    """Several lines, without a newline behind the last."""
    machine, python = line["machine"], line["python"]
    threads = "" if line["backend"] == "cuda" else f", {machine['threads']} threads"
    settings = f", {line['settings']}" if line["settings"] else ""
    out = [
        f"{line['op']} over {line['workload']}: {line['tensors']:,} tensors, {line['elements']:,} elements of "
        f"{line['bytes_per_element']:g} bytes, types {line['types']}{settings}",
        f"  on: {line['backend']} {line['variant']}, {machine['device']}{threads}"
        + (f" ({machine['clocks']})" if machine["clocks"] else "")
        + f"; Python {python['python']}, torch {python['torch']}, {python['torch_threads']} threads of torch",
    ]
    check = line["check"]
    if not check["right"]:
        return "\n".join([*out, f"  quern is WRONG, so nothing is timed: {check['wrong']}"])
    ceiling, apart = line["ceilings"][line["ceiling"]], "wall" in line
    out += [
        f"  check: quern ok, {check['elements']:,} elements of {check['steps']} steps against float64, "
        f"{check['signs_that_differ']} signs within rounding of zero differ",
        f"  timer: {line['timer']}, {len(line['fused']['samples_ns'])} rounds side by side, cache {line['cache']}; "
        f"ceiling: {ceiling['name']} with {ceiling['way']}, {ceiling['gbps']:.1f} GB/s in these rounds",
        _row(apart, "step of", "time", "", "GB/s", "ceiling", "wall", "host", "host, moved", "quern against it"),
        _row(apart, line["by"], *_figures(line, line["fused"], False)),
    ]
    for peer in line["peers"]:
        name = " ".join([peer["name"], *peer["version"].split()[-1:]])
        if peer["absent"]:
            out.append(_row(apart, name, "-", peer["absent"]))
        else:
            out.append(_row(apart, name, *_figures(peer, peer["step"], bool(peer["check"]["wrong"])), _judgement(peer)))
    if line["suspicion"]:
        out.append(f"  {line['suspicion']}")
    return "\n".join(out)
