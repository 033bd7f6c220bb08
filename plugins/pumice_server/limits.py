"""Bounds of what a request may choose. The types of the fields (``field_types``) and their limits derive from them."""

# --- of every request

MAX_BODY = 32 << 20  # bytes
MAX_DEPTH = 64  # brackets within brackets
MAX_VALUES = 1 << 21  # commas and opening brackets of a body: at least as many as its values
MAX_BRACKETS = 1 << 18  # opening brackets of a body: at least as many as its lists and objects, which cost most
MAX_ARRIVING = 256 << 20  # bytes of all bodies that arrive at once; beyond, the answer is 503
SMALL_BODY = 64 << 10  # bytes of a body that always has room
BODY_SECONDS = 60.0  # for a body to arrive
HEADER_SECONDS = 15.0  # for the headers of a request to arrive, once it or its connection began
MAX_HEADERS = 64 << 10  # bytes
MAX_CHUNKS = 1024  # of a body, and one more for each CHUNK_BYTES bytes
CHUNK_BYTES = 256
STALL_SECONDS = 60.0  # in which a client has to take a part of its answer
DRAIN_SECONDS = 30.0  # in which what a client sends after its answer is read, and thrown away
MAX_DRAINED = 256 << 20  # bytes of that
IDLE_SECONDS = 75  # of a connection, longer than clients and proxies keep theirs: whoever ends it knows that it ended
MAX_MODELS = 1000  # that are served at once; a fetched one has many names, by case and host
MAX_CONNECTIONS = 1000  # at once; beyond, the answer is 503
MAX_KEPT_STREAM = 4 << 20  # bytes of a stream that outlives its connection; the first are dropped
MAX_KEPT_STREAMS = 64  # such streams, of which the oldest that have ended are dropped first
MAX_UNREAD_STREAMS = 2  # of a client, that are written for nobody; the oldest are stopped
MAX_KEPT = 64 << 20  # bytes of kept responses, the oldest forgotten first

MAX_CONVERSATIONS = 1 << 30  # characters of the stored conversations of all clients
MAX_SAID = 24 << 20  # characters of a stored conversation's or message's object, enough for a video of the page

# --- of fields, and of what is in them

MAX_NAME = 1024  # characters of a name
MAX_FILES = 256  # uploaded ones of a model
MAX_MESSAGES = 10_000
MAX_SCALES = 1024  # adapters
MAX_TOOLS = 1024
MAX_RUN_CALLS = 32  # calls of one answer that the server runs
MAX_APPROVED = 1024  # calls that a request approves, of which the server runs as many as of an answer
MAX_PROMPTS = 128
MAX_TEXTS = 2048  # to embed or to rank
MAX_LAYERS = 1024  # of a request for hidden states
MAX_STATES = 1 << 22  # values of hidden states in an answer
MAX_IDS = 1 << 20  # tokens of a prompt, whatever the context
MAX_N = 16  # completions of one prompt
MAX_LOGPROBS = 20  # likeliest tokens that are told for each
MAX_PROBS = 100  # the same, for llama-server's completions
MAX_BIAS = 1e30  # what is added to a logit, up and down
MAX_BIAS_LENGTH = 256  # characters of a text that stands for tokens
MAX_SPELT = 2 << 20  # bytes of a text whose tokens are told: each may be one
