# SPDX-License-Identifier: Apache-2.0
"""Every golden vector of every op through the function on NumPy arrays: all storage types, several steps, every
parameter, bit for bit. Catches a parameter that is put into the wrong member or dropped, a role or type that is taken
for another, an array given where another is meant."""

import pathlib

import pytest

np = pytest.importorskip("numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")

import quern  # noqa: E402
from quern import _abi, _about, _ops  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f64": np.float64}
WORDS = {"f32": np.uint32, "f16": np.uint16, "bf16": np.uint16, "f64": np.uint64}


class Case:
    """A case of a golden file: `lines` are its steps, to be run by `run`."""

    def __init__(self, op, name, types, lines):
        self.op, self.name, self.lines = _ops.op(op), name, lines
        self.types = dict(zip((role.name for role in self.op.roles), types.split()))
        self.params, self.elements, self.arrays = {}, [], {}
        row = self.op.rows[self.op.types.index(tuple(types.replace("-", "none").split()))]
        self.written = [role.name for role, (_, access) in zip(self.op.roles, row) if access & _abi.WRITE]

    def read(self, role, text):
        kind = self.types[role]
        bits = np.array([int(word, 16) for word in text.split()], WORDS[kind])
        parts = np.split(bits, np.cumsum(self.elements)[:-1])
        return [part.view(DTYPES[kind]).copy() for part in parts]

    def call(self):
        roles = {role.plural: self.arrays.get(role.name) for role in self.op.roles}
        words = {name: value for name, value in self.params.items() if name not in ("beta1", "beta2", "hyper")}
        if "beta1" in self.params:
            words["betas"] = (self.params["beta1"], self.params["beta2"])
        if "hyper" in self.params:  # the members live there, and what the keywords say is not read
            live = [p.name for p in self.op.params.values() if p.hyper_offset is not None]
            struct = self.op.Hyper()
            for name in live:
                default = self.op.params[name].default
                setattr(struct, name, words.pop(name, default))
            words["hyper"] = np.frombuffer(bytearray(bytes(struct)), np.uint8)
        getattr(quern, f"{self.op.name}_")(**roles, **words)

    def set(self, name, value):
        param = self.op.params[name]
        kind = {"float": float, "int": int, "bool": lambda text: bool(int(text)), "enum": str}.get(param.type_name)
        if kind:
            self.params[name] = kind(value)
        elif not value:
            self.params[name] = True
        elif param.type_name == "host":
            self.params[name] = [int(number) for number in value.split(",")]
        elif "," in value or name == "agreement":
            self.params[name] = np.array([int(number) for number in value.split(",")], np.int64)
        else:
            self.params[name] = np.array([float(value)], np.float32)

    def run(self):
        """Runs it all; returns how many arrays of each written role were compared."""
        compared, steps = dict.fromkeys(self.written, 0), 0
        for line in self.lines:
            word, _, rest = line.partition(" ")
            name, _, value = rest.partition(" ")
            if word == "tensor":
                self.elements = [int(n) for n in rest.split()]
            elif word == "set":
                for text in rest.split():
                    self.set(*text.partition("=")[::2])
            elif word == "give":
                self.arrays[name] = self.read(name, value)
            elif word == "want":
                for got, want in zip(self.arrays[name], self.read(name, value)):
                    bits = WORDS[self.types[name]]
                    equal = (got.view(bits) == want.view(bits)) | (np.isnan(got) & np.isnan(want))
                    if bits is np.uint64:  # the C library's functions round their own way
                        equal |= np.abs(got - want) <= 2.0**-42 * np.abs(want) + 2.0**-1060
                    assert equal.all(), f"{name}: {got[~equal]} and not {want[~equal]}"
                    compared[name] += 1
            elif word == "step":
                if steps and "step" in self.op.params:  # it counts up by itself
                    self.params["step"] = self.params.get("step", 0) + 1
                self.call()
                steps += 1
        return compared


def cases():
    for op in _about.list_ops():
        path = ROOT / f"src/op/{op}/golden/{op}.txt"
        case, seen = None, {}
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("case "):
                case = [line[5:]]
            elif case and line == "end":
                name, types = case[0], case[1][6:]
                title = f"{op} {name} {types}"
                seen[title] = seen.get(title, 0) + 1
                yield pytest.param(Case(op, name, types, case[2:]), id=f"{title} {seen[title]}".replace(" ", "_"))
                case = None
            elif case:
                case.append(line)


@pytest.mark.parametrize("case", cases())
def test_golden(case):
    compared = case.run()
    assert compared and min(compared.values()) >= len(case.elements), compared


def refusals():
    """(op, params as keywords, words that the sentence must have), of those that a Python value can say."""
    for op in _about.list_ops():
        for line in (ROOT / f"src/op/{op}/golden/{op}.txt").read_text(encoding="utf-8").splitlines():
            if line.startswith("refuse "):
                said, _, words = line[7:].partition(" : ")
                yield pytest.param(op, dict(pair.split("=") for pair in said.split()), words.split(), id=f"{op} {said}")


@pytest.mark.parametrize(("op", "said", "words"), refusals())
def test_refused(op, said, words):
    made = _ops.op(op)
    arrays = [[np.ones(5, np.float32)] for role in made.roles if not role.optional]
    keywords = {}
    for name, text in said.items():
        param = made.params[name]
        if text in param.values:  # one of an enum's, by its name
            keywords[name] = text
            continue
        number = float(text) if param.type_name == "float" else int(text)
        if param.type_name == "enum" and 0 <= number < len(param.values):
            number = param.values[number]
        keywords[name] = number
    if "beta1" in keywords or "beta2" in keywords:
        keywords["betas"] = (keywords.pop("beta1", 0.9), keywords.pop("beta2", 0.99))
    with pytest.raises((ValueError, TypeError)) as error:
        getattr(quern, f"{op}_")(*arrays, **keywords)
    assert words[0] in str(error.value) and words[1] in str(error.value)
    assert all((array == 1).all() for (array,) in arrays)
