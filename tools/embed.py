# SPDX-License-Identifier: Apache-2.0
"""Turn device sources into one C table: embed.py OUT TABLE ROOT FILE... (names in TABLE are relative to ROOT)."""

import pathlib
import sys

out, table, root, *files = sys.argv[1:]
root = pathlib.Path(root).resolve()
arrays, rows = [], []
for k, file in enumerate(files):
    path = pathlib.Path(file).resolve()
    data = path.read_bytes()
    arrays.append(f"static const unsigned char source_{k}[] = {{{','.join(map(str, data + bytes(1)))}}};\n")
    rows.append(f'    {{"{path.relative_to(root).as_posix()}", (const char *)source_{k}, {len(data)}}},\n')
pathlib.Path(out).write_text(
    '#include "core/source.h"\n'
    + "".join(arrays)
    + f"const qn_source {table}[] = {{\n"
    + "".join(rows)
    + "    {0},\n};\n"
)
