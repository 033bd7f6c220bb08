"""Everything a plugin may import, bundled or not."""

from pumice.architecture import Architecture, HParams, positive
from pumice.arena import Arena
from pumice.backend import Ahead, Backend, Batch, DeviceInfo, KernelTime, Limits, NoOptions, Pick, Program
from pumice.chat import ChatFormat, Keys
from pumice.errors import BackendError, ModelError, PluginError, PumiceError, RequestError
from pumice.gguf import (
    CODINGS,
    KV_TYPES,
    Coding,
    GGMLType,
    GGUFTensor,
    block_size,
    dequantize,
    quantize,
    row_bytes,
    type_size,
)
from pumice.graph import (
    Graph,
    GraphBuilder,
    Input,
    KVState,
    MemoryPlan,
    Node,
    RecurrentState,
    Segment,
    State,
    Tensor,
    Weight,
    concrete,
    plan_memory,
)
from pumice.graph.rope import rope_frequencies, rope_magnitude
from pumice.hookspecs import hookimpl
from pumice.host import host_memory_bytes
from pumice.sampler import Candidates, Sampler, SamplerContext
from pumice.tokenizers import PreTokenizer, Tokenizer
from pumice.tokenizers.special import SpecialTokens
from pumice.tokenizers.vocabulary import Vocabulary

__all__ = [
    "CODINGS",
    "KV_TYPES",
    "Ahead",
    "Architecture",
    "Arena",
    "Backend",
    "BackendError",
    "Batch",
    "Candidates",
    "ChatFormat",
    "Coding",
    "DeviceInfo",
    "GGMLType",
    "GGUFTensor",
    "Graph",
    "GraphBuilder",
    "HParams",
    "Input",
    "KVState",
    "KernelTime",
    "Keys",
    "Limits",
    "MemoryPlan",
    "ModelError",
    "NoOptions",
    "Node",
    "Pick",
    "PluginError",
    "PreTokenizer",
    "Program",
    "PumiceError",
    "RecurrentState",
    "RequestError",
    "Sampler",
    "SamplerContext",
    "Segment",
    "SpecialTokens",
    "State",
    "Tensor",
    "Tokenizer",
    "Vocabulary",
    "Weight",
    "block_size",
    "concrete",
    "dequantize",
    "hookimpl",
    "host_memory_bytes",
    "plan_memory",
    "positive",
    "quantize",
    "rope_frequencies",
    "rope_magnitude",
    "row_bytes",
    "type_size",
]
