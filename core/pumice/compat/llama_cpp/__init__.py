"""``Llama`` of llama-cpp-python over ``pumice.Model``: change the import, and keep the program.

::

    from pumice.compat.llama_cpp import Llama

    llm = Llama(model_path="model.gguf", n_ctx=2048)
    print(llm("Once upon a time", max_tokens=8)["choices"][0]["text"])

``install()`` lets packages that import ``llama_cpp`` by name find this one.
"""

import sys

from pumice.compat.llama_cpp import llama_cpp
from pumice.compat.llama_cpp.arguments import (
    LlamaDiskCache,
    LlamaGrammar,
    LlamaPromptLookupDecoding,
    LlamaRAMCache,
    LogitsProcessorList,
    MinTokensLogitsProcessor,
    StoppingCriteriaList,
)
from pumice.compat.llama_cpp.llama import Llama
from pumice.compat.llama_cpp.llama_cpp import *  # noqa: F403
from pumice.compat.llama_cpp.sequence import LlamaState
from pumice.compat.llama_cpp.vocabulary import LlamaTokenizer

LlamaCache = LlamaRAMCache

__all__ = [
    "Llama",
    "LlamaCache",
    "LlamaDiskCache",
    "LlamaGrammar",
    "LlamaPromptLookupDecoding",
    "LlamaRAMCache",
    "LlamaState",
    "LlamaTokenizer",
    "LogitsProcessorList",
    "MinTokensLogitsProcessor",
    "StoppingCriteriaList",
    "install",
    *llama_cpp.__all__,
]


def install() -> None:
    """Let ``import llama_cpp``, here and in other packages, give this package.

    Raises:
        RuntimeError: llama-cpp-python is imported already.
    """
    own = {"llama_cpp": sys.modules[__name__], "llama_cpp.llama": sys.modules[Llama.__module__]}
    own |= {"llama_cpp.llama_cpp": llama_cpp, "llama_cpp.llama_grammar": sys.modules[LlamaGrammar.__module__]}
    for name, module in own.items():
        if sys.modules.get(name, module) is not module:
            raise RuntimeError(f"{name} is imported already; call install() before the package that imports it")
    sys.modules.update(own)
