# SPDX-License-Identifier: Apache-2.0
"""Read the public headers of ops for description.c: description.py OUT INCLUDE OP...

From all other headers it takes the names of the structs. From include/quern/<op>.h it takes the members of the params
and hyper structs, the enums that comments on members name, and the roles of the step's prototype, and writes them as
X-macro calls. What the compiler knows (offsets, sizes, types) is left to the compiler."""

import pathlib
import re
import sys

out, include, *ops = sys.argv[1:]
lines = ["/* Made by description.py from the public headers. */\n"]


def fail(op, what):
    sys.exit(f"include/quern/{op}.h: {what}")


def strip(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def struct_body(text, name):
    found = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", text, flags=re.S)
    return found.group(1) if found else None


def members(body):
    """(type, name) of each, in order; comments are gone."""
    for declaration in strip(body).split(";"):
        declaration = " ".join(declaration.split())
        if not declaration:
            continue
        first, *others = declaration.split(",")
        kind, name = re.fullmatch(r"(.*?[\s*])(\w+)", first.strip()).groups()
        yield kind.strip(), name
        for other in others:
            yield kind.strip(), other.strip()


def enum_names(text, name):
    found = re.search(rf"typedef enum {name} \{{(.*?)\}} {name};", text, flags=re.S)
    return [word.split("=")[0].strip() for word in strip(found.group(1)).split(",")] if found else None


for header in sorted((pathlib.Path(include) / "quern").glob("*.h")):
    if header.stem not in ops:
        lines += [f"STRUCT({name})\n" for name in re.findall(r"^typedef struct (\w+) \{", header.read_text(), re.M)]
for op in ops:
    text = (pathlib.Path(include) / "quern" / f"{op}.h").read_text()
    included = "".join(
        (pathlib.Path(include) / "quern" / name).read_text() for name in re.findall(r'#include "(\w+\.h)"', text)
    )
    params = struct_body(text, f"qn_{op}_params") or fail(op, f"there is no struct qn_{op}_params")
    of_hyper = [kind.split()[1] for kind, name in members(params) if name == "hyper"]  # "const qn_lion_hyper *"
    lines.append(f"OP({op}, {f'sizeof({of_hyper[0]})' if of_hyper else 0})\n")
    for place, (_, name) in enumerate(members(params)):
        if (name == "size") != (place == 0):
            fail(op, "the first member of params, and no other, is size")
        if place:
            lines.append(f"MEMBER({op}, {name})\n")
    for _, name in members(struct_body(text + included, of_hyper[0]) if of_hyper else ""):
        lines.append(f"HYPER_MEMBER({op}, {of_hyper[0]}, {name})\n")
    for name, enum in re.findall(r"int32_t\s+(\w+);\s*/\*\s*(qn_\w+)", params):
        values = enum_names(text + included, enum)
        for k, value in enumerate(values or fail(op, f"the comment on {name} names {enum}, which is no enum here")):
            lines.append(f"VALUE({op}, {name}, {value}, {k})\n")
    step = re.search(rf"qn_status qn_{op}(?:_step)?\((.*?)\);", strip(text), flags=re.S) or fail(op, f"no qn_{op}_step")
    roles = re.findall(r"const qn_tensor \*(\w+)", step.group(1))
    for k, role in enumerate(roles):
        lines.append(f"ROLE({op}, {role}, {k}, {len(roles)})\n")
    lines.append(f"END({op})\n")
pathlib.Path(out).write_text("".join(lines))
