"""Functions that are compiled only as parts of kernels, which takes less time than Numba's usual way.

Usually, Numba compiles each function that a kernel calls to machine code, adds an entry for calls from Python and then
inlines it. A part is inlined before any machine code is made, so LLVM compiles it only once, within the kernel.
"""

from collections.abc import Callable
from typing import Any

import numba
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


def inlined(function: Callable) -> Callable:
    """Make ``function`` a part of kernels. It must not create or return arrays, because it counts no references."""
    without: Any = {"_nrt": False, "no_rewrites": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    part: Any = numba.njit(function, forceinline=True, error_model="numpy", pipeline_class=_Compiler, **without)
    at_types = part.get_call_template

    def at_any_numbers(args: tuple, kws: dict) -> Any:
        # Without this, Numba compiles the part again for each integer literal in a call.
        return at_types(tuple(map(types.unliteral, args)), kws)

    part.get_call_template = at_any_numbers
    return part


class _Library(JITCodeLibrary):
    """LLVM's intermediate code of a part and of the parts that it calls."""

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    _name = "lowering_of_parts"

    def run_pass(self, state: Any) -> bool:
        state.library = _Library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        address: Any = [].append  # Numba's key for a function; a part has no address, a new object does
        state.targetctx.insert_user_function(address, state.cr.fndesc, [state.library])
        state["cr"] = state.cr._replace(cfunc=address)
        return True


class _Compiler(CompilerBase):
    def define_pipelines(self) -> list:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [(_Lowering if of is NativeLowering else of, why) for of, why in passes.passes]
        passes.finalize()
        return [passes]
