"""Code generation: a Python function becomes machine code for one instruction set.

Numba translates the function to LLVM IR. LLVM, restricted to exactly the chosen instruction set, compiles the IR to an
object file.
"""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pumice_cpu import pretranslated
from pumice_cpu.isa import Isa, current, machine_has, processor
from pumice_cpu.translation import INLINED, Translated, translate

#: The first two parameters of every kernel; the entry function loads the others from a row of arguments.
CALL = ("thread", "n_threads")


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def object_file(source: str, triple: str = "", isa: Isa | None = None) -> bytes:
    """Compile LLVM IR to an object file.

    Args:
        source: LLVM IR.
        triple: target triple of the operating system; empty for this machine's.
        isa: instruction set; by default the current one.
    """
    isa = isa or current()
    machine = target_machine(isa, triple)
    return machine.emit_object(_optimized(source, isa, machine))


@functools.cache
def target_machine(isa: Isa, triple: str = "") -> Any:
    """Return LLVM's target machine with exactly the features of ``isa``."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    runs_here = not triple and machine_has(isa)
    if not triple and isa.processor not in ("", processor()):
        triple = f"{isa.processor}-unknown-linux-gnu"
    triple = triple or llvm.get_process_triple()
    target = llvm.Target.from_triple(triple)
    return target.create_target_machine(
        cpu=isa.cpu, features=isa.features, opt=3, reloc="pic", codemodel="default", jit=runs_here
    )


def kernel_source(function: Callable[..., Any], symbol: str) -> str:
    """Return LLVM IR for a kernel that exports ``void symbol(i64 arguments, i64 thread, i64 n_threads)``.

    Args:
        function: takes ``thread``, ``n_threads`` and then its own parameters. The entry function loads these as
            consecutive int64 from the address ``arguments``.
        symbol: exported name.
    """
    names = parameters(function)
    assert tuple(names[:2]) == CALL, f"{function.__name__} must begin with the parameters thread, n_threads"
    loads, values = [], ["i64 %thread", "i64 %n_threads"]
    for i in range(len(names) - 2):
        loads.append(f"  %p{i} = getelementptr i64, ptr %row, i64 {i}\n  %a{i} = load i64, ptr %p{i}\n")
        values.append(f"i64 %a{i}")
    head = f"define void @{symbol}(i64 %arguments, i64 %thread, i64 %n_threads) {{\n"
    return _with_entry(function, head + "  %row = inttoptr i64 %arguments to ptr\n" + "".join(loads), values)


def function_source(function: Callable[..., Any], symbol: str) -> str:
    """Return LLVM IR for a function that exports ``void symbol(i64, ...)``, to be called from Python."""
    values = [f"i64 %a{i}" for i in range(len(parameters(function)))]
    return _with_entry(function, f"define void @{symbol}({', '.join(values)}) {{\n", values)


def _with_entry(function: Callable[..., Any], head: str, values: Sequence[str]) -> str:
    """Return LLVM IR of an entry that calls the function by Numba's convention and drops its status, all inlined."""
    import llvmlite.binding as llvm

    parts = _parts(function)
    name = parts[0].name
    declaration = f"declare i32 @{name}(ptr, ptr{', i64' * len(values)})\n"
    call = f"  %status = call i32 @{name}(ptr %result, ptr %error, {', '.join(values)})\n  ret void\n}}\n"
    entry = declaration + head + "  %result = alloca ptr\n  %error = alloca ptr\n" + call
    # Without any data, llvmlite's memory manager reserves nothing for the table through which memset is called.
    entry += f'@"{name}.data" = common global i64 0\n'
    machine = target_machine(current())
    module = _parsed(entry, machine)
    for part in parts:
        module.link_in(_prepared(llvm.parse_bitcode(part.bitcode), machine))
    # First of all, so that loops over registers are optimized where it is known which registers they are.
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return str(module)


def _parts(function: Callable[..., Any]) -> list[Translated]:
    """Translate a kernel, and return it with all functions that it calls, directly or by another.

    Raises:
        TypeError: it calls a function that is not ``inline``, such as ``min``, which would not be linked.
    """
    from numba import types
    from numba.core import registry
    from numba.core.compiler_lock import global_compiler_lock

    with global_compiler_lock:
        registry.cpu_target.typing_context.refresh()
        registry.cpu_target.target_context.refresh()
        kernel = translate(function, (types.int64,) * len(parameters(function)))
    parts, todo = {kernel.name: kernel}, deque(kernel.callees)
    while todo:
        name = todo.popleft()
        if name not in INLINED:
            raise TypeError(f"kernel {function.__name__} calls functions that are not inlined: {name}")
        if name not in parts:
            parts[name] = INLINED[name]
            todo.extend(parts[name].callees)
    return list(parts.values())


def _optimized(source: str, isa: Isa, machine: Any) -> Any:
    import llvmlite.binding as llvm

    module = _parsed(source, machine)
    module.link_in(_parsed(_definitions(isa), machine))
    llvm.set_option("pumice", "-unroll-threshold=4000")  # loops over registers must be fully unrolled
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def _definitions(isa: Isa) -> str:
    if (shipped := pretranslated.definitions(isa.name)) is not None:
        return shipped
    from pumice_cpu.simd.define import definitions  # imports Numba

    return definitions(isa)


def _parsed(source: str, machine: Any) -> Any:
    import llvmlite.binding as llvm

    return _prepared(llvm.parse_assembly(source), machine)


def _prepared(module: Any, machine: Any) -> Any:
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    return module
