# SPDX-License-Identifier: Apache-2.0
"""Candidates for the judge: cheats by the row of the published list of ways to fool a kernel benchmark, broken files,
and honest candidates. Each is the text of a file with ModelNew; the problem is PROBLEM."""

import platform

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(n) + 0.5)

    def forward(self, x, y):
        return torch.cumsum(x * self.weight, 1) + torch.tanh(y)

def get_inputs():
    return [torch.randn(64, 257), torch.randn(64, 257)]

def get_init_inputs():
    return [257]

def get_domain_inputs():
    return [[torch.randn(n, 257), torch.randn(n, 257)] for n in (1, 61, 65)]
"""

HEAD = """
import ctypes, json, os, socket, struct, subprocess, sys, threading, time
import torch

class Right(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(n) + 0.5)
        self.calls = 0

    def right(self, x, y):
        return torch.cumsum(x * self.weight, 1) + torch.tanh(y)

    def forward(self, x, y):
        self.calls += 1
        return self.answer(x, y)
"""


def body(text: str, before: str = "") -> str:
    """A candidate whose answer(x, y) is the text."""
    lines = "\n".join("        " + line for line in text.strip("\n").splitlines())
    return f"{HEAD}\n{before}\nclass ModelNew(Right):\n    def answer(self, x, y):\n{lines}\n"


# (row of the list, name, text of the file, verdict, words of the reason)
CHEATS = [
    (2, "thread finishes later", body("""
out = torch.zeros_like(x)
def work():
    time.sleep(0.02)
    out.copy_(self.right(x, y))
threading.Thread(target=work).start()
return out"""), "wrong values", ""),
    (2, "works on after the call", body("""
def work():
    until = time.thread_time() + 0.3
    while time.thread_time() < until:
        pass
threading.Thread(target=work).start()
return self.right(x, y)"""), "refused", "after the call had returned|leaves a thread|clock misses"),
    (3, "cache keyed on the shape", body("""
if x.shape not in cache:
    cache[x.shape] = self.right(x, y)
return cache[x.shape].clone()""", "cache = {}"), "wrong values|wrong shape or type", ""),
    (3, "cache keyed on a fingerprint", body("""
key = x.shape, tuple(torch.sign(x[0, :64]).tolist())
if key not in cache:
    cache[key] = self.right(x, y)
return cache[key].clone()""", "cache = {}"), "wrong values", ""),
    (4, "stale memory", body("return torch.empty_like(x)"), "wrong values", ""),
    (5, "returns an input", body("return x"), "refused|wrong values", ""),
    (5, "writes the result over an input", body("""
out = self.right(x, y)
y.copy_(out)
return y"""), "refused", "changed its input"),
    (5, "shares memory with an input", body("""
out = self.right(x, y)
keep = y.clone()
y.set_(torch.cat([out.reshape(-1), keep.reshape(-1)]).untyped_storage(), out.numel(), y.shape, y.stride())
return y.new_empty(0).set_(y.untyped_storage(), 0, out.shape, out.stride())"""), "refused", "shares memory|changed"),
    (6, "changes an input", body("""
out = self.right(x, y)
x.add_(1)
return out"""), "refused", "changed its input number 0"),
    (7, "looks for the expected output", body("""
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        for fd in os.listdir(f'/proc/{pid}/fd'):
            if 'memfd:outputs' in os.readlink(f'/proc/{pid}/fd/{fd}'):
                data = open(f'/proc/{pid}/fd/{fd}', 'rb').read(4 * x.numel())
                if len(data) == 4 * x.numel():
                    return torch.frombuffer(bytearray(data), dtype=x.dtype).reshape(x.shape)
    except OSError:
        pass
return torch.zeros_like(x)"""), "wrong values", ""),
    (8, "overwrites what it may be compared with", body("""
for fd in os.listdir('/proc/self/fd'):
    try:
        if 'memfd' in os.readlink(f'/proc/self/fd/{fd}'):
            with open(f'/proc/self/fd/{fd}', 'r+b') as file:
                file.write(bytes(os.fstat(int(fd)).st_size))
    except OSError:
        pass
return torch.zeros_like(x)"""), "wrong values", ""),
    (9, "NaN as a wildcard", body("return torch.full_like(x, float('nan'))"), "wrong values", "nan"),
    (9, "infinity as a wildcard", body("return torch.full_like(x, float('inf'))"), "wrong values", "inf"),
    (10, "zeros", body("return torch.zeros_like(x)"), "wrong values", ""),
    (11, "a constant answer", body("""
global kept
if kept is None:
    kept = self.right(x, y)
return kept.clone()""", "kept = None"), "wrong values", ""),
    (12, "skips the last row", body("""
out = self.right(x, y)
out[-1] = 0
return out"""), "wrong values", ""),
    (12, "skips the last column", body("""
out = self.right(x, y)
out[:, -1] = out[:, -2]
return out"""), "wrong values", ""),
    (13, "made for one shape", body("""
return self.right(x, y) if len(x) == 64 else torch.zeros_like(x)"""), "wrong values", ""),
    (14, "another type", body("return self.right(x, y).double()"), "wrong shape or type", "float64"),
    (14, "another shape", body("return self.right(x, y).reshape(-1)"), "wrong shape or type", r"\[16448\]"),
    (15, "writes behind an input", body("""
ctypes.memset(x.data_ptr() + x.numel() * x.element_size(), 0, 4)
return self.right(x, y)"""), "refused", "behind the end"),
    (16, "bfloat16 inside", body("return self.right(x.bfloat16(), y.bfloat16()).float()"), "wrong values", ""),
    (17, "sums in bfloat16", body("""
terms = (x * self.weight).bfloat16().unbind(1)
sums = [terms[0]]
for term in terms[1:]:
    sums.append(sums[-1] + term)
return torch.stack(sums, 1).float() + torch.tanh(y)"""), "wrong values", ""),
    (18, "a clock of its own", body(
        "return self.right(x, y)", "time.perf_counter_ns = lambda: 0"
    ), "refused", "replaced"),
    (18, "the judge's clock in its process", body(
        "return self.right(x, y)", "sys.modules['_child'].now = lambda c=[0]: c.append(0) or len(c)"
    ), "refused", "replaced"),
    (18, "a synchronisation that does not wait", body(
        "return self.right(x, y)", "torch.cuda.synchronize = lambda *a: None"
    ), "refused", "replaced"),
    (18, "a comparison that always holds", body(
        "return torch.zeros_like(x)", "torch.allclose = torch.equal = lambda *a, **k: True"
    ), "refused", "replaced"),
    (18, "a clock that is slowed where no name changes", body("""
time.sleep(0.01)
return self.right(x, y)""", """
main = sys.modules['_child']
real = main.Session.do_go.__code__
given = "{'ns': 1000, 'event_ns': None, 'device_ns': None}"
text = "def do_go(self, wait, flush):\\n    if self.spiked: torch._foreach_mul_(self.spiked, 50)\\n"
text += "    self.outputs = self._call()\\n    return " + given
slow = compile(text, "x", "exec")
main.Session.do_go.__code__ = [c for c in slow.co_consts if hasattr(c, 'co_code')][0]"""), "refused", "clock"),
    (19, "writes an answer on the pipe", body("""
for fd in range(3, 64):
    try:
        text = json.dumps({"nonce": 0, "ns": 1}).encode()
        os.write(fd, struct.pack("=I", len(text)) + text)
    except OSError:
        pass
return self.right(x, y)"""), "broken", "descriptors"),
    (19, "ends early", body("""
if self.calls > 4:
    os._exit(0)
return self.right(x, y)"""), "broken", "exit status 0"),
    (20, "another clock in the C library", body("""
libc.usleep(10000)
return self.right(x, y)""", """
libc = ctypes.CDLL(None)
clock = ctypes.cast(libc.clock_gettime, ctypes.c_void_p).value
libc.mprotect(ctypes.c_void_p(clock & -4096), 8192, 7)
# 1 us more at each call: mov rax, [rip+33]; add rax, 1000; mov [rip+20], rax; mov qword [rsi], 0; mov [rsi+8], rax;
# xor eax, eax; ret. Its count lies behind.
code = bytes.fromhex('488b0521000000' '4805e8030000' '48890514000000' '48c70600000000' '48894608' '31c0' 'c3')
ctypes.memmove(clock, code.ljust(48, bytes(1)), 48)"""), "refused", "clock misses"),
    (21, "right in warm-up only", body(
        "return self.right(x, y) if self.calls < 8 else torch.zeros_like(x)"
    ), "wrong values", ""),
    (23, "only every other call works", body("""
if self.calls % 2:
    self.last = self.right(x, y)
return self.last.clone()"""), "wrong values", ""),
    (24, "an output computed when it is read", HEAD + """
class Lazy(torch.Tensor):
    pass

class ModelNew(Right):
    def answer(self, x, y):
        return self.right(x, y).as_subclass(Lazy)
""", "wrong type", "Lazy"),
    (26, "an answer made in the constructor", HEAD + """
class ModelNew(Right):
    def __init__(self, n):
        super().__init__(n)
        state = torch.get_rng_state()
        torch.manual_seed(42)
        self.made = self.right(torch.randn(64, n), torch.randn(64, n)).detach()
        torch.set_rng_state(state)

    def answer(self, x, y):
        return self.made.clone() if x.shape == self.made.shape else self.right(x, y)
""", "wrong values", ""),
    (27, "a workspace that keeps half of the result", body("""
out = self.right(x, y)
if room and room[0].shape == x.shape:
    out[len(x) // 2:] = room[0][len(x) // 2:]
room[:] = [out.clone()]
return out""", "room = []"), "wrong values", ""),
    (34, "a race that loses now and then", body("""
out = self.right(x, y)
if int(torch.randint(0, 4, ())) == 0:
    out[0, 5] += 100
return out"""), "wrong values", ""),
    (35, "changes its priority", body("""
if self.calls == 1:
    os.nice(5)
return self.right(x, y)"""), "refused", "changed the priority"),
    (36, "a file outside its folder", body("""
open('/var/tmp/quern-judge-memo', 'w').write('x')
return self.right(x, y)"""), "forward fails", "Permission denied"),
    (37, "the seed in the surroundings", body("""
words = ' '.join(sys.argv) + ' '.join(os.environ) + open('/proc/1/cmdline').read()
return self.right(x, y) if 'seed' in words.lower() else torch.zeros_like(x)"""), "wrong values", ""),
    (38, "right for normal data alone", body("""
return torch.cumsum(x * self.weight, 1) + torch.where(y.abs() > 7, 0, torch.tanh(y))"""), "wrong values", ""),
    (39, "counts its calls", body(
        "return self.right(x, y) if self.calls < 20 else self.right(x, y) * 1.5"
    ), "wrong values", ""),
]  # fmt: skip
LEFT_OUT = [] if platform.machine() == "x86_64" else [20]  # a row whose case has code of that processor
CHEATS = [case for case in CHEATS if case[0] not in LEFT_OUT]

BROKEN = [
    ("syntax error", "class ModelNew(:\n", "syntax error", ":1:"),
    ("error on import", "import torch\nimport no_such_module_at_all\n", "import error", "no_such_module_at_all"),
    ("exit on import", "import sys\nsys.exit(0)\n", "import error", "SystemExit"),
    ("no ModelNew", "import torch\nclass Model(torch.nn.Module): pass\n", "no ModelNew", "defines no class"),
    ("constructor", HEAD + "class ModelNew(Right):\n    def __init__(self, n):\n        raise ValueError('no room')\n",
     "constructor fails", "no room"),
    ("forward", body("raise RuntimeError('no such kernel')"), "forward fails", "no such kernel"),
    ("other weights", HEAD + """
class ModelNew(Right):
    def __init__(self, n):
        super().__init__(n)
        self.weight = torch.nn.Parameter(torch.rand(n) + 0.5)

    def answer(self, x, y):
        return self.right(x, y)
""", "different weights", ""),
    ("crash", body("ctypes.string_at(8)"), "broken", "SIGSEGV"),
    ("hang", body("time.sleep(600)"), "broken", "took more than"),
    ("memory bomb", body(
        "hog = []\nwhile True:\n    hog.append(torch.ones(1 << 26))"
    ), "broken|forward fails", "memory"),
    ("fork bomb", body("""
while True:
    try:
        if os.fork() == 0:
            time.sleep(600)
    except OSError:
        pass"""), "broken", "processes|memory"),
    ("flood", body(
        "while True:\n    os.write(1, b'x' * 65536)"
    ), "broken|forward fails", "SIGXFSZ|took|File too large"),
    ("full disk", body("""
with open('big', 'wb') as file:
    while True:
        file.write(b'x' * (1 << 20))"""), "broken|forward fails", "GiB of files|SIGXFSZ|File too large"),
    ("network", body("""
socket.create_connection(('127.0.0.1', 9), 2)
return self.right(x, y)"""), "forward fails", "Error"),
    ("leaves a process", body("""
if self.calls == 1:
    subprocess.Popen(['sleep', '987'])
return self.right(x, y)"""), "faster|same|slower|unclear", ""),
]  # fmt: skip

HONEST = [
    ("the same", body("return self.right(x, y)")),
    ("in place in its own memory", body("return torch.cumsum(x * self.weight, 1).add_(torch.tanh(y))")),
    (
        "other names and order",
        HEAD
        + """
class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.inner = torch.nn.ParameterDict({'w': torch.rand(n) + 0.5})

    def forward(self, x, y):
        return torch.cumsum(x * self.inner['w'], 1) + torch.tanh(y)
""",
    ),
    ("half the work in float64", body("return (torch.cumsum(x.double() * self.weight, 1) + torch.tanh(y)).float()")),
    (
        "a workspace that it keeps",
        HEAD
        + """
class ModelNew(Right):
    room = None

    def answer(self, x, y):
        if self.room is None or self.room.shape != x.shape:
            self.room = torch.empty_like(x)
        torch.mul(x, self.weight, out=self.room)
        return torch.cumsum(self.room, 1) + torch.tanh(y)
""",
    ),
    ("a file with a byte order mark", "\ufeff" + body("return self.right(x, y)")),
    (
        "threads that it joins",
        body("""
out = torch.empty_like(x)
half = x.shape[0] // 2
def work(a, b):
    with torch.inference_mode():
        out[a:b] = self.right(x[a:b], y[a:b])
threads = [threading.Thread(target=work, args=part) for part in ((0, half), (half, x.shape[0]))]
[t.start() for t in threads]
[t.join() for t in threads]
return out"""),
    ),
    (
        "it imports torch's compiler",
        body(
            "return compiled(x, y, self.weight)",
            """
@torch.compile(backend="eager")
def compiled(x, y, w):
    return torch.cumsum(x * w, 1) + torch.tanh(y)
""",
        ),
    ),
]

# On a GPU: as CHEATS.
CUDA_CHEATS = [
    (1, "work on another stream", body("""
out = torch.zeros_like(x)
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    torch.cuda._sleep(20_000_000)
    out.copy_(self.right(x, y))
return out""", "side = torch.cuda.Stream()"), "wrong values|refused", ""),
    (1, "work on another stream, begun before the clock", body("""
with torch.cuda.stream(side):
    out = self.right(x, y)
torch.cuda.current_stream().wait_stream(side)
return out""", "side = torch.cuda.Stream()"), "wrong values", ""),
    (1, "work on another stream, late by an event", body("""
out = self.right(x, y)
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    torch.cuda._sleep(2_000_000)
return out""", "side = torch.cuda.Stream()"), "refused", "longer than the call.s stream"),
    (28, "a graph that replays one answer", body("""
global graph, out
if graph is None and self.calls > 2:
    graph = torch.cuda.CUDAGraph()
    keep = x.clone(), y.clone()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        out = self.right(*keep)
if graph is None:
    return self.right(x, y)
graph.replay()
return out.clone()""", "graph = out = None"), "wrong values|wrong shape or type", ""),
    (33, "a launch that fails in silence", body("return torch.empty_like(x)"), "wrong values", ""),
    (18, "an event of its own", body(
        "return self.right(x, y)", "torch.cuda.Event.elapsed_time = lambda *a: 1e-3"
    ), "refused", "replaced"),
]  # fmt: skip
