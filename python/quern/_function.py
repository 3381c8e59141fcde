# SPDX-License-Identifier: Apache-2.0
"""Functions that carry their derivatives with them, as mlx.core.custom_function does: a forward, a vjp and a jvp, each
any callable of arrays. Nothing is differentiated here; what PyTorch's autograd makes of them is
quern.torch.function's business, and whether they are right is _gradient.py's."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def listed(value: object) -> list:
    """The arrays of a result: one by itself, or a list or tuple of them."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def bare(values: Sequence):
    """As MLX hands them to a vjp: one by itself, several as a tuple."""
    return values[0] if len(values) == 1 else tuple(values)


class function:
    """A function of arrays with derivatives of its own.

        @quern.function
        def f(x, y): ...                      # arrays in, an array or a tuple of arrays out

        @f.vjp
        def f_vjp(primals, cotangents, outputs): ...   # cotangents of the inputs out, None for one that has none

        @f.jvp
        def f_jvp(primals, tangents): ...     # tangents of the outputs out

    One input, output or cotangent is the array itself, several are a tuple, as in MLX. forward, vjp and jvp may be
    kernels of quern.load_kernel: the arguments of such a vjp are inputs, cotangents and, if it has as many, outputs;
    its outputs are in the order of the inputs, or named x_cotangent or x_grad for input x."""

    def __init__(
        self, forward: Callable | None = None, *, vjp: Callable | None = None, jvp: Callable | None = None
    ) -> None:
        if not callable(forward):
            raise TypeError(f"quern.function takes a callable, not {forward!r}")
        self.forward: Callable = forward
        self.name: str = getattr(forward, "__name__", type(forward).__name__)
        self.__name__, self.__doc__ = self.name, getattr(forward, "__doc__", None)
        self.__wrapped__ = forward
        self._vjp: Callable | None = None
        self._jvp: Callable | None = None
        if vjp is not None:
            self.vjp(vjp)
        if jvp is not None:
            self.jvp(jvp)

    def __call__(self, *primals, **more):
        return self.forward(*primals, **more)

    def __repr__(self) -> str:
        has = [word for word, given in (("vjp", self._vjp), ("jvp", self._jvp)) if given]
        return f"<quern function {self.name}{' with ' + ' and '.join(has) if has else ''}>"

    # ---- what it is given ----
    def vjp(self, rule: Callable) -> function:
        """Sets the vjp; returns this function, so that it may decorate."""
        self._vjp = self._rule("vjp", rule)
        return self

    def jvp(self, rule: Callable) -> function:
        """Sets the jvp; returns this function."""
        self._jvp = self._rule("jvp", rule)
        return self

    def _rule(self, what: str, rule: Callable) -> Callable:
        if not callable(rule):
            raise TypeError(f"{self.name}: its {what} is {rule!r}, it must be a callable")
        from ._folder import FolderKernel

        if not isinstance(rule, FolderKernel):
            return rule
        return _kernel_vjp(self, rule) if what == "vjp" else _kernel_jvp(rule)

    @property
    def has_vjp(self) -> bool:
        return self._vjp is not None

    @property
    def has_jvp(self) -> bool:
        return self._jvp is not None

    @property
    def rule(self) -> Callable:
        """The vjp as a callable of primals, cotangents and outputs, whose result nobody checks."""
        if self._vjp is None:
            raise ValueError(f"{self.name} has no vjp")
        return self._vjp

    # ---- derivatives ----
    def gradient(self, inputs: Sequence, cotangents: object, outputs: object = None) -> list:
        """The cotangents of the inputs, one each, for those of the outputs; outputs: of the forward at these inputs,
        which is called for them if they are not given. None where an input has no derivative. ValueError if there is no
        vjp or it gives another number or other shapes than the inputs'."""
        rule = self.rule
        inputs, given = list(inputs), listed(cotangents)
        made = listed(self.forward(*inputs) if outputs is None else outputs)
        if len(given) != len(made):
            raise ValueError(f"{self.name} has {len(made)} outputs, and {len(given)} cotangents are given")
        return self._checked("vjp", listed(rule(bare(inputs), bare(given), bare(made))), inputs, "input")

    def tangents(self, inputs: Sequence, tangents: Sequence) -> list:
        """The tangents of the outputs for those of the inputs. ValueError if there is no jvp."""
        if self._jvp is None:
            raise ValueError(f"{self.name} has no jvp")
        inputs, given = list(inputs), listed(tangents)
        if len(given) != len(inputs):
            raise ValueError(f"{self.name} has {len(inputs)} inputs, and {len(given)} tangents are given")
        return listed(self._jvp(bare(inputs), bare(given)))

    def _checked(self, what: str, made: list, like: Sequence, word: str) -> list:
        if len(made) != len(like):
            raise ValueError(f"the {what} of {self.name} gives {len(made)} arrays, and there are {len(like)} {word}s")
        for k, (one, other) in enumerate(zip(made, like)):
            shape, wanted = getattr(one, "shape", None), getattr(other, "shape", ())
            if one is not None and shape is not None and tuple(shape) != tuple(wanted):
                raise ValueError(
                    f"the {what} of {self.name} gives {word} {k} the shape {tuple(shape)}, it has {tuple(wanted)}"
                )
        return made


def _kernel_vjp(of: function, kernel) -> Callable:
    def rule(primals, cotangents, outputs):
        given = [*listed(primals), *listed(cotangents), *listed(outputs)]
        made = listed(kernel(*given[: len(kernel.arguments)]))
        names = getattr(of.forward, "arguments", None)
        if names is None or len(made) == len(names):
            return bare(made)
        by_name = dict(zip(kernel.returned, made))
        return bare([by_name.get(f"{name}_cotangent", by_name.get(f"{name}_grad")) for name in names])

    return rule


def _kernel_jvp(kernel) -> Callable:
    return lambda primals, tangents: kernel(*listed(primals), *listed(tangents))


def _named(f: object) -> function:
    if not isinstance(f, function):
        raise TypeError(f"{f!r} is no quern.function: only what is one has derivatives")
    return f


def vjp(f: function, primals: Sequence, cotangents: Sequence) -> tuple[list, list]:
    """(outputs, cotangents of the inputs) of a quern.function, as mlx.core.vjp."""
    made = _named(f)
    outputs = listed(made(*primals))
    return outputs, made.gradient(primals, cotangents, outputs)


def jvp(f: function, primals: Sequence, tangents: Sequence) -> tuple[list, list]:
    """(outputs, tangents of the outputs) of a quern.function, as mlx.core.jvp."""
    made = _named(f)
    return listed(made(*primals)), made.tangents(primals, tangents)
