"""Translate functions of kernels to LLVM IR with Numba."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Translated(NamedTuple):
    """A function in LLVM IR, to be inlined where it is called."""

    name: str
    bitcode: bytes
    callees: list[str]  # names of functions that Numba compiled apart from this one
    result: Any  # Numba's type of the result
    description: Any  # Numba's description of the function


INLINED: dict[str, Translated] = {}
"""Functions that kernels call, by mangled name."""


def translate(function: Callable[..., Any], arguments: Sequence[Any]) -> Translated:
    """Translate a function to LLVM IR with Numba, for arguments of these types."""
    import llvmlite.binding as llvm
    from numba.core import compiler, config, registry

    flags: Any = compiler.Flags()
    flags.no_compile = True
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"
    flags.forceinline = True
    target, settings = registry.cpu_target, vars(config)
    optimization, settings["OPT"] = settings["OPT"], 0  # LLVM optimizes whole kernels later
    try:
        result = compiler.compile_extra(
            target.typing_context, target.target_context, function, tuple(arguments), None, flags, {}
        )
        module, name = llvm.parse_assembly(result.library.get_llvm_str()), result.fndesc.llvm_func_name
    finally:
        settings["OPT"] = optimization
    module.get_function(name).linkage = "linkonce_odr"
    for variable in module.global_variables:  # of Numba's, which nothing reads
        variable.linkage = "internal"
    callees = [callee.name for callee in module.functions if callee.is_declaration and callee.name.startswith("_ZN")]
    return Translated(name, module.as_bitcode(), callees, result.signature.return_type, result.fndesc)
