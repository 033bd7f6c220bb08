"""Translate functions of kernels to LLVM IR with Numba."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Translated(NamedTuple):
    """A function in LLVM IR, to be inlined where it is called."""

    name: str
    bitcode: bytes
    callees: list[str]  # names of functions that Numba compiled apart from this one
    result: Any  # Numba's type of the result
    description: Any  # Numba's description of the function


UNUSED = (
    *("WithLifting", "InlineClosureLikes", "MakeFunctionToJitFunction", "RewriteDynamicRaises", "GenericRewrites"),
    *("InlineInlinables", "FindLiterallyCalls", "LiteralUnroll", "LiteralPropagationSubPipelinePass"),
    *("InlineOverloads", "NopythonRewrites", "NoPythonSupportedFeatureValidation", "AnnotateTypes"),
    "DumpParforDiagnostics",
)
"""Numba's passes for what kernels do not contain, such as closures, array expressions and literal arguments.

Without them the IR of every kernel is the same, in four fifths of the time.
"""

INLINED: dict[str, Translated] = {}
"""Functions that kernels call, by mangled name."""


@functools.cache
def _pipeline() -> type[Any]:
    """Return a Numba compiler without the passes that kernels do not need."""
    from numba.core import compiler

    class KernelCompiler(compiler.CompilerBase):
        def define_pipelines(self) -> list[Any]:
            passes = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
            passes.passes[:] = [entry for entry in passes.passes if entry[0].__name__ not in UNUSED]
            passes.finalize()
            return [passes]

    return KernelCompiler


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
            target.typing_context,
            target.target_context,
            function,
            tuple(arguments),
            None,
            flags,
            {},
            pipeline_class=_pipeline(),
        )
        module, name = llvm.parse_assembly(result.library.get_llvm_str()), result.fndesc.llvm_func_name
    finally:
        settings["OPT"] = optimization
    module.get_function(name).linkage = "linkonce_odr"
    for variable in module.global_variables:  # of Numba's, which nothing reads
        variable.linkage = "internal"
    callees = [callee.name for callee in module.functions if callee.is_declaration and callee.name.startswith("_ZN")]
    return Translated(name, module.as_bitcode(), callees, result.signature.return_type, result.fndesc)
