"""The second tier of the contract of plugins: fast backends, media, speech, clusters, and helpers of bundled plugins.

These names may change in a minor version; docs/plugin_changes.md says what changed. `pumice.plugin` is the promised
tier.
"""

from pumice.architecture import (
    ALIGN as ALIGN,
    DRAFT as DRAFT,
    ENCODER as ENCODER,
    FEATURES as FEATURES,
    HEAD as HEAD,
    MAIN as MAIN,
    SOUND_WINDOW as SOUND_WINDOW,
    STREAM as STREAM,
    Masks as Masks,
    MediaRules as MediaRules,
    transcribes as transcribes,
)
from pumice.backend import (
    Backend as Backend,
    CacheForm as CacheForm,
    Capabilities as Capabilities,
    DeviceInfo as DeviceInfo,
    Fact as Fact,
    KernelTime as KernelTime,
    Program as Program,
)
from pumice.backend.arena import Arena as Arena, zeroed_pages as zeroed_pages
from pumice.backend.cache_views import CacheViews as CacheViews, HostProgram as HostProgram
from pumice.backend.pick import (
    Ahead as Ahead,
    Ask as Ask,
    Pick as Pick,
    PickLimits as PickLimits,
    Raw as Raw,
    Restriction as Restriction,
)
from pumice.backend.step import (
    LATEST as LATEST,
    Batch as Batch,
    Limits as Limits,
    Memory as Memory,
    Passed as Passed,
    Pending as Pending,
    Step as Step,
)
from pumice.cache_files import (
    PRIVATE as PRIVATE,
    is_safe as is_safe,
    read_file as read_file,
    stated_cache as stated_cache,
    temporary_folder as temporary_folder,
    write_file as write_file,
)
from pumice.chat.media import (
    MEDIA_TYPES as MEDIA_TYPES,
    kind_of_base64 as kind_of_base64,
    media_from_base64 as media_from_base64,
    mixed_content as mixed_content,
    web_address as web_address,
)
from pumice.chat.mixed import at_markers as at_markers
from pumice.clients import CLIENT as CLIENT, REQUEST_CANCELLED as REQUEST_CANCELLED
from pumice.cluster import BatchRow as BatchRow, Cluster as Cluster, ModelSpec as ModelSpec, Replicas as Replicas
from pumice.gguf import CODINGS as CODINGS, KV_TYPES as KV_TYPES, Coding as Coding
from pumice.gguf.split import SPLIT_NAME as SPLIT_NAME
from pumice.graph import (
    ELEMENTWISE as ELEMENTWISE,
    GATES as GATES,
    HIDDEN as HIDDEN,
    OPERATIONS as OPERATIONS,
    ArraySource as ArraySource,
    DraftBlock as DraftBlock,
    Formula as Formula,
    Graph as Graph,
    Input as Input,
    KVState as KVState,
    MemoryPlan as MemoryPlan,
    Node as Node,
    Operation as Operation,
    RecurrentState as RecurrentState,
    Segment as Segment,
    Sizes as Sizes,
    State as State,
    StepRows as StepRows,
    Walk as Walk,
    broadcast_walk as broadcast_walk,
    concrete as concrete,
    mask_width as mask_width,
    operation as operation,
    plan_memory as plan_memory,
    row_size as row_size,
)
from pumice.graph.media import ROWS as _ROWS
from pumice.installed import install_command as install_command
from pumice.machine import (
    bounded_threads as bounded_threads,
    cores as cores,
    host_memory_bytes as host_memory_bytes,
    parse_size as parse_size,
)
from pumice.media.audio import VOICE_SOUNDS as VOICE_SOUNDS, read_voice as read_voice
from pumice.media.images import MAX_IMAGES as MAX_IMAGES
from pumice.media.silence import pieces as pieces
from pumice.media.sound_files import SOUND_TYPES as SOUND_TYPES, SoundWriter as SoundWriter, encode_file as encode_file
from pumice.media.subtitles import subrip as subrip, webvtt as webvtt
from pumice.media.videos import VIDEO_TYPES as VIDEO_TYPES, VideoForm as VideoForm, VideoPlan as VideoPlan
from pumice.media_encoder import (
    AudioEncoder as AudioEncoder,
    Frames as Frames,
    ImageEncoder as ImageEncoder,
    ImagePiece as ImagePiece,
    JoinedPieces as JoinedPieces,
    MediaStage as MediaStage,
    Samples as Samples,
    SoundPiece as SoundPiece,
)
from pumice.sampler import Plan as Plan, PlannedSampler as PlannedSampler
from pumice.sandbox import Access as Access, cache_homes as cache_homes
from pumice.server_protocol import (
    Endpoint as Endpoint,
    ErrorFormat as ErrorFormat,
    Handler as Handler,
    Problem as Problem,
    Scope as Scope,
    ServerProtocol as ServerProtocol,
)
from pumice.speech_model import (
    AddedRows as AddedRows,
    GraphRuns as GraphRuns,
    LastRow as LastRow,
    PromptRows as PromptRows,
    SpeechGraph as SpeechGraph,
    SpeechModel as SpeechModel,
    SpeechStep as SpeechStep,
    SpeechTask as SpeechTask,
    SpeechVocabulary as SpeechVocabulary,
    SpokenText as SpokenText,
)
from pumice.switching import without_collections as without_collections
from pumice.wording import show_value as show_value

MEDIA_ROWS = _ROWS
__all__ = [name for name in dir() if not name.startswith("_")]  # all that is imported
