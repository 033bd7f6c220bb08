"""The second tier of the contract of plugins: fast backends, media, speech, clusters, and helpers of bundled plugins.

These names may change in a minor version; docs/plugin_changes.md says what changed. `pumice.plugin` is the promised
tier.
"""

from pumice.architecture import ALIGN, DRAFT, ENCODER, FEATURES, HEAD, MAIN, STREAM, Masks, MediaRules
from pumice.audio import VOICE_SOUNDS, read_voice
from pumice.backend import Backend, CacheForm, Capabilities, DeviceInfo, Fact, KernelTime, Program
from pumice.backend.arena import Arena, zeroed_pages
from pumice.backend.cache_views import CacheViews, HostProgram
from pumice.backend.pick import Ahead, Ask, Pick, PickLimits, Raw, Restriction
from pumice.backend.step import LATEST, Batch, Limits, Memory, Passed, Pending, Step
from pumice.cache_files import PRIVATE, is_safe, read_file, stated_cache, temporary_folder, write_file
from pumice.chat.media import MEDIA_TYPES, kind_of_base64, media_from_base64, mixed_content, web_address
from pumice.chat.mixed import at_markers
from pumice.clients import CLIENT, REQUEST_CANCELLED
from pumice.cluster import BatchRow, Cluster, ModelSpec, Replicas
from pumice.gguf import CODINGS, KV_TYPES, Coding
from pumice.gguf.split import SPLIT_NAME
from pumice.graph import (
    ELEMENTWISE,
    GATES,
    HIDDEN,
    OPERATIONS,
    ArraySource,
    DraftBlock,
    Formula,
    Graph,
    Input,
    KVState,
    MemoryPlan,
    Node,
    Operation,
    RecurrentState,
    Segment,
    Sizes,
    State,
    StepRows,
    Walk,
    broadcast_walk,
    concrete,
    mask_width,
    operation,
    plan_memory,
    row_size,
)
from pumice.graph.media import ROWS as MEDIA_ROWS
from pumice.images import MAX_IMAGES
from pumice.installed import install_command
from pumice.machine import bounded_threads, cores, host_memory_bytes, parse_size
from pumice.media_encoder import (
    AudioEncoder,
    Frames,
    ImageEncoder,
    ImagePiece,
    JoinedPieces,
    MediaStage,
    Samples,
    SoundPiece,
)
from pumice.sampler import Plan, PlannedSampler
from pumice.sandbox import Access, cache_homes
from pumice.server_protocol import Endpoint, ErrorFormat, Handler, Problem, Scope, ServerProtocol
from pumice.silence import pieces
from pumice.sound_files import SOUND_TYPES, SoundWriter, encode_file
from pumice.speech_model import (
    AddedRows,
    GraphRuns,
    LastRow,
    PromptRows,
    SpeechGraph,
    SpeechModel,
    SpeechStep,
    SpeechTask,
    SpeechVocabulary,
    SpokenText,
)
from pumice.subtitles import subrip, webvtt
from pumice.switching import without_collections
from pumice.videos import VIDEO_TYPES, VideoForm, VideoPlan
from pumice.wording import show_value

__all__ = [
    "ALIGN",
    "CLIENT",
    "CODINGS",
    "DRAFT",
    "ELEMENTWISE",
    "ENCODER",
    "FEATURES",
    "GATES",
    "HEAD",
    "HIDDEN",
    "KV_TYPES",
    "LATEST",
    "MAIN",
    "MAX_IMAGES",
    "MEDIA_ROWS",
    "MEDIA_TYPES",
    "OPERATIONS",
    "PRIVATE",
    "REQUEST_CANCELLED",
    "SOUND_TYPES",
    "SPLIT_NAME",
    "STREAM",
    "VIDEO_TYPES",
    "VOICE_SOUNDS",
    "Access",
    "AddedRows",
    "Ahead",
    "Arena",
    "ArraySource",
    "Ask",
    "AudioEncoder",
    "Backend",
    "Batch",
    "BatchRow",
    "CacheForm",
    "CacheViews",
    "Capabilities",
    "Cluster",
    "Coding",
    "DeviceInfo",
    "DraftBlock",
    "Endpoint",
    "ErrorFormat",
    "Fact",
    "Formula",
    "Frames",
    "Graph",
    "GraphRuns",
    "Handler",
    "HostProgram",
    "ImageEncoder",
    "ImagePiece",
    "Input",
    "JoinedPieces",
    "KVState",
    "KernelTime",
    "LastRow",
    "Limits",
    "Masks",
    "MediaRules",
    "MediaStage",
    "Memory",
    "MemoryPlan",
    "ModelSpec",
    "Node",
    "Operation",
    "Passed",
    "Pending",
    "Pick",
    "PickLimits",
    "Plan",
    "PlannedSampler",
    "Problem",
    "Program",
    "PromptRows",
    "Raw",
    "RecurrentState",
    "Replicas",
    "Restriction",
    "Samples",
    "Scope",
    "Segment",
    "ServerProtocol",
    "Sizes",
    "SoundPiece",
    "SoundWriter",
    "SpeechGraph",
    "SpeechModel",
    "SpeechStep",
    "SpeechTask",
    "SpeechVocabulary",
    "SpokenText",
    "State",
    "Step",
    "StepRows",
    "VideoForm",
    "VideoPlan",
    "Walk",
    "at_markers",
    "bounded_threads",
    "broadcast_walk",
    "cache_homes",
    "concrete",
    "cores",
    "encode_file",
    "host_memory_bytes",
    "install_command",
    "is_safe",
    "kind_of_base64",
    "mask_width",
    "media_from_base64",
    "mixed_content",
    "operation",
    "parse_size",
    "pieces",
    "plan_memory",
    "read_file",
    "read_voice",
    "row_size",
    "show_value",
    "stated_cache",
    "subrip",
    "temporary_folder",
    "web_address",
    "webvtt",
    "without_collections",
    "write_file",
    "zeroed_pages",
]
