"""The promised tier of the contract of plugins.

Nothing of these names changes without a deprecation over two minor versions. What is below this module
(`unstable`, `nn`, `convert`) may change in a minor version; docs/plugin_changes.md says what changed.
"""

from pumice.architecture import Architecture, HParams
from pumice.chat import ChatFormat, Keys
from pumice.errors import BackendError, MediaError, ModelError, PumiceError, RequestError, TokenizerError
from pumice.gguf import GGMLType, GGUFTensor, block_size, dequantize, quantize, row_bytes, type_size
from pumice.graph import (
    N_OUTPUTS,
    N_SEQS,
    N_TOKENS,
    GraphBuilder,
    Result,
    Tensor,
    TensorSource,
    Weight,
    composite,
    fixed,
)
from pumice.hookspecs import API_VERSION, Register, hookimpl
from pumice.proposers import Proposer, ProposerContext
from pumice.quantizer import Quantizer
from pumice.sampler import Candidates, MaskSampler, Sampler, SamplerContext, Selector
from pumice.tokenizers import PreTokenizer, Tokenizer
from pumice.tokenizers.special import SpecialTokens
from pumice.tokenizers.vocabulary import Vocabulary

__all__ = [
    "API_VERSION",
    "N_OUTPUTS",
    "N_SEQS",
    "N_TOKENS",
    "Architecture",
    "BackendError",
    "Candidates",
    "ChatFormat",
    "GGMLType",
    "GGUFTensor",
    "GraphBuilder",
    "HParams",
    "Keys",
    "MaskSampler",
    "MediaError",
    "ModelError",
    "PreTokenizer",
    "Proposer",
    "ProposerContext",
    "PumiceError",
    "Quantizer",
    "Register",
    "RequestError",
    "Result",
    "Sampler",
    "SamplerContext",
    "Selector",
    "SpecialTokens",
    "Tensor",
    "TensorSource",
    "Tokenizer",
    "TokenizerError",
    "Vocabulary",
    "Weight",
    "block_size",
    "composite",
    "dequantize",
    "fixed",
    "hookimpl",
    "quantize",
    "row_bytes",
    "type_size",
]
