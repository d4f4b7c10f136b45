"""Transforms: Python functions that JavaScript calls while it traces them."""
import functools
from .connection import Missing, NAMES, camel
from .trees import Traced, fill, filled, leaves, like
from .values import Callback, encode, request


def need(name):
    if not isinstance(NAMES.get(camel(name)), list): raise Missing(f"vkmx has no {name}")
    return NAMES[camel(name)]


class Captured:
    """A tree of Python's whose arrays a compiled function reads or writes, and the object that holds them in JavaScript."""
    def __init__(self, tree):
        self.tree, self.there = tree, request("container", value=None)

    def show(self):
        keep = []
        request("fill", self=self.there._id, value=encode(self.tree, keep), keep=keep)

    def read(self): return request("held", self=self.there._id)


def compile(fun, inputs=None, outputs=None, shapeless=False):
    if not callable(fun): raise TypeError("compile() needs a function")
    current, made = [(), {}], []
    state = [None if t is None else Captured(t) for t in (inputs, outputs)]

    def trace(args, kwargs):
        def body(a):
            result = fun(*a[0][0], **a[0][1])
            for c in state:
                if c: c.show()
            return result
        return filled((tuple(current), inputs), [[args, kwargs], state[0].read() if state[0] else None], body)

    def make():
        need("compile")
        traced, keep = Traced(trace), []
        sent = [encode(Callback(traced), keep), *[encode(c and c.there, keep) for c in state], shapeless]
        made.extend([traced, request("call", path="compile", args=sent, keep=keep)])

    def compiled(*args, **kwargs):
        if not made: make()
        for c in state:
            if c: c.show()
        saved, current[:] = list(current), [args, kwargs]
        held = leaves([c and c.tree for c in state])  # until they were put back
        try: result = made[0].result(made[1](list(args), kwargs))
        finally: current[:] = saved
        for c in state:  # JavaScript also says what a trace leaves in a container that is only read
            if c: fill(c.tree, c.read())
        del held
        return result
    try: return functools.wraps(fun)(compiled)
    except AttributeError: return compiled


def gradient(kind):
    def transform(fun, argnums=None, argnames=()):
        names = [argnames] if isinstance(argnames, str) else list(argnames)
        if argnums is None and not names: argnums = 0
        nums = [argnums] if isinstance(argnums, int) else list(argnums or ())
        if not nums and not names: raise ValueError(f"[{kind}] Gradient wrt no argument requested")
        if any(n < 0 for n in nums): raise ValueError(f"[{kind}] Can't compute the gradient of negative argument index {min(nums)}")
        if len(set(nums)) < len(nums): raise ValueError(f"[{kind}] Duplicate argument index is not allowed.")
        if len(set(names)) < len(names): raise ValueError(f"[{kind}] Duplicate argument name is not allowed.")
        def wrapped(*args, **kwargs):
            need(kind)
            if nums and max(nums) >= len(args): raise ValueError(f"[{kind}] Can't compute the gradient of argument index {max(nums)} because the function is called with only {len(args)} positional arguments.")
            for n in names:
                if n not in kwargs: raise ValueError(f"[{kind}] Can't compute the gradient of keyword argument '{n}' because the function is called with the following keyword arguments {{{', '.join(kwargs)}}}")
            all_args = (*args, *(kwargs[n] for n in names))
            others = {k: v for k, v in kwargs.items() if k not in names}
            def inner(*a):
                return filled(all_args, list(a), lambda a: fun(*a[:len(args)], **dict(zip(names, a[len(args):])), **others))
            traced, keep = Traced(inner), []
            js_nums = nums + list(range(len(args), len(all_args)))
            single = len(nums) == 1 and not names
            g = request("call", path=camel(kind), args=[encode(Callback(traced), keep), js_nums[0] if single else js_nums], keep=keep)
            out = g(*all_args)
            value, grads = out if kind == "value_and_grad" else (None, out)
            value = traced.result(value)
            if single: grads = like(all_args[js_nums[0]], grads)
            else:
                grads = [like(all_args[n], x) for n, x in zip(js_nums, grads)]
                positional, named = grads[:len(nums)], dict(zip(names, grads[len(nums):]))
                first = tuple(positional) if len(positional) > 1 else positional[0] if positional else None
                grads = (first, named) if names else first
            return (value, grads) if kind == "value_and_grad" else grads
        return wrapped
    return transform


def products(kind):
    def transform(fun, primals, others):
        need(kind)
        traced, keep = Traced(lambda *a: fun(*a)), []
        out = request("call", path=camel(kind), args=[encode(Callback(traced), keep), encode(primals, keep), encode(others, keep)], keep=keep)
        return tuple(out)
    return transform


def vmap(fun, in_axes=0, out_axes=0):
    def wrapped(*args, **kwargs):
        need("vmap")
        def inner(*a):
            a = like(args, list(a))
            return fun(*a, **kwargs)
        traced, keep = Traced(inner), []
        g = request("call", path="vmap", args=[encode(Callback(traced), keep), encode(in_axes, keep), encode(out_axes, keep)], keep=keep)
        return traced.result(g(*args))
    return wrapped


def checkpoint(fun):
    need("checkpoint")
    def wrapped(*args, **kwargs):
        traced, keep = Traced(lambda *a: fun(*like(args, list(a)), **kwargs)), []
        return traced.result(request("call", path="checkpoint", args=[encode(Callback(traced), keep)], keep=keep)(*args))
    return wrapped


class custom_function:
    """customFunction(fn) of vkmx is taken as a callable with methods vjp, jvp and vmap that take a function."""
    def __init__(self, fun):
        need("custom_function")
        self.traced, keep = Traced(fun), []
        self.js = request("call", path="customFunction", args=[encode(Callback(self.traced), keep)], keep=keep)

    def __call__(self, *args): return self.traced.result(self.js(*args))

    def rule(name):
        def method(self, f):
            self.js.method(name, Callback(lambda *a: f(*[tuple(x) if isinstance(x, list) else x for x in a])))
            return self
        return method
    vjp, jvp, vmap = rule("vjp"), rule("jvp"), rule("vmap")


grad, value_and_grad = gradient("grad"), gradient("value_and_grad")
def vjp(fun, primals, cotangents): return products("vjp")(fun, primals, cotangents)
def jvp(fun, primals, tangents): return products("jvp")(fun, primals, tangents)


