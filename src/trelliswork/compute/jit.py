"""Decorators of compiled functions. Compiled code is kept on disk, see ``compute.kernel_cache``.

Numba optimizes every function on its own and turns it into machine code, then once more within each function that calls
it. Here only kernels are: what they call is linked into them first.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numba
from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.targetconfig import ConfigStack

from trelliswork.compute.kernel_cache import CHECKED, KernelCache

FASTMATH = {"reassoc", "contract"}  # never True: it would assume that infinities do not occur, and -inf is our zero


class _Part(JITCodeLibrary):
    """Code of a function that kernels call: simplified, but optimized and made executable only within them."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: there is no machine code."""
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> Any:
        """What sets the environment of a function that Python calls: here ``set_env``, which does nothing."""
        return self

    def set_env(self, env_name: str, env: Any) -> None:
        """Do nothing."""


class KernelCompiler(Compiler):
    """Numba's compiler, which compiles everything that a kernel calls as a part of the kernel."""

    def compile_extra(self, func: Callable[..., Any]) -> Any:
        """Compile a kernel."""
        codegen = self.state.targetctx.codegen()
        self.state.library = codegen.create_library(func.__qualname__)
        self.state.library.enable_object_caching()
        codegen._library_class = _Part  # of this object; Numba holds its lock while it compiles
        try:
            return super().compile_extra(func)
        finally:
            del codegen._library_class


def kernel(
    function: Callable[..., Any] | None = None, /, *, fast: bool = False, allocates: bool = False, **options: Any
) -> Any:
    """Compile a function that Python code calls: cached on disk, without the interpreter lock.

    ``fast`` allows sums to be reordered and products to be fused (``FASTMATH``). ``allocates``: it, or a helper it
    calls, makes new arrays. Other functions count no references to arrays, which may take longer than the work of an
    inner loop; Numba refuses new arrays there. Other options are Numba's.
    """
    if function is None:
        return partial(kernel, fast=fast, allocates=allocates, **options)
    compiled = _compiled(function, fast, pipeline_class=KernelCompiler, _nrt=allocates, **options)
    compiled._cache = KernelCache(function)

    @cache
    def as_helper() -> Any:
        return helper(function, fast=fast, allocates=allocates, **options)

    # A kernel that another kernel calls is a helper there.
    compiled.get_call_template = lambda args, kws: as_helper().get_call_template(args, kws)
    compiled.get_overload = lambda args: as_helper().get_overload(args)
    return compiled


def helper(
    function: Callable[..., Any] | None = None, /, *, fast: bool = False, allocates: bool = False, **options: Any
) -> Any:
    """Compile a function that only kernels call: its code is stored within theirs, and Python cannot call it.

    Options as for `kernel`. A helper that returns arrays has two versions, since the array must be counted by the
    caller and the helper, or by neither.
    """
    if function is None:
        return partial(helper, fast=fast, allocates=allocates, **options)

    @cache
    def version(counts: bool) -> Any:
        compiled = _compiled(function, fast, no_cpython_wrapper=True, _nrt=counts, **options)

        # For kernels, but not for Python, which would jump to a wrapper at address 0.
        def add_overload(result: Any) -> None:
            compiled.overloads[tuple(result.signature.args)] = result

        compiled.add_overload = add_overload
        return compiled

    def counted(args: Any) -> bool:
        if not ConfigStack.top_or_none().nrt:
            return allocates  # which Numba refuses
        return allocates or _has_arrays(version(False).overloads[tuple(args)].signature.return_type)

    def get_call_template(args: Any, kws: Any) -> Any:
        if allocates:
            return version(True).get_call_template(args, kws)
        template = version(False).get_call_template(args, kws)
        return version(True).get_call_template(args, kws) if counted(template[2]) else template

    def refuse(*_: Any, **__: Any) -> None:
        raise TypeError(f"{function.__name__} is a helper: kernels call it, Python cannot.")

    front = _compiled(function, fast, **options)
    front.get_call_template, front.get_overload = (
        get_call_template,
        lambda args: version(counted(args)).get_overload(args),
    )
    front.version, front._compile_for_args = version, refuse
    return front


def method(name: str, otherwise: Any = None) -> Any:
    """Return what kernels call to run the helper ``name`` of the class of a record, their first argument.

    So a kernel is written once for records of several classes, NamedTuples, and compiled for each of them. A first
    argument that is no record is for the helper ``otherwise``. The kernel that Python calls must be in a module that
    imports the class, since its source is part of the key under which compiled code is stored.
    """

    def chosen(args: Any) -> Any:
        record = getattr(args[0], "instance_class", None)
        return otherwise if record is None else getattr(record, name)

    front: Any = numba.njit(lambda *args: None)
    front.get_call_template = lambda args, kws: chosen(args).get_call_template(args, kws)
    front.get_overload = lambda args: chosen(args).get_overload(args)
    return front


def _has_arrays(result: Any) -> bool:
    """Return whether a result has references that are counted."""
    parts = result.types if isinstance(result, types.BaseTuple) else ()  # type: ignore[attr-defined]
    return isinstance(result, types.Array) or any(map(_has_arrays, parts))


def _compiled(function: Callable[..., Any], fast: bool, **options: Any) -> Any:
    """Return the compiled function. Without wrappers that nobody calls, compilation takes a sixth less time."""
    options |= {
        "nogil": True,
        "no_cfunc_wrapper": True,
        "fastmath": FASTMATH if fast else False,
        "boundscheck": CHECKED,
    }
    return numba.njit(**options)(function)
