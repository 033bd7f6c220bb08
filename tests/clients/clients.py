"""The clients that are tried: their packages, pinned, and the page of their documentation that the programs follow."""

from typing import NamedTuple


class Client(NamedTuple):
    """A client of the server.

    Attributes:
        name: Name in the table.
        program: File in ``programs`` or ``programs_js``.
        packages: Pinned packages of PyPI or npm, the client's own first.
        in_dev: True if the packages are in the development lock, so that they need no installation.
    """

    name: str
    program: str
    packages: tuple[str, ...]
    in_dev: bool = False


CLIENTS = [
    Client("OpenAI", "client_openai.py", ("openai==3.54.0",), True),
    Client("Anthropic", "client_anthropic.py", ("anthropic==2.12.0",), True),
    Client("Ollama", "client_ollama.py", ("ollama==0.6.3",), True),
    Client("Hugging Face Hub", "client_huggingface_hub.py", ("huggingface_hub==2.4.0",), True),
    Client("LiteLLM", "client_litellm.py", ("litellm==1.106.2",)),
    Client("Instructor", "client_instructor.py", ("instructor==1.17.0",)),
    Client("Pydantic AI", "client_pydantic_ai.py", ("pydantic-ai-slim[openai]==2.68.0",)),
    Client("LangChain, OpenAI", "client_langchain_openai.py", ("langchain-openai==1.7.3",)),
    Client("LangChain, Ollama", "client_langchain_ollama.py", ("langchain-ollama==1.1.0",)),
    Client("LlamaIndex, Ollama", "client_llama_index_ollama.py", ("llama-index-llms-ollama==0.11.0",)),
    Client("LlamaIndex", "client_llama_index.py", ("llama-index-llms-openai-like==0.8.1",)),
    Client("smolagents", "client_smolagents.py", ("smolagents[openai]==1.26.0",)),
    Client("DSPy", "client_dspy.py", ("dspy==3.4.1",)),
    Client("Haystack", "client_haystack.py", ("haystack-ai==3.4.0",)),
    Client("AutoGen", "client_autogen.py", ("autogen-ext[openai]==0.7.5",)),
    Client("OpenAI Agents", "client_openai_agents.py", ("openai-agents==0.24.0",)),
    Client("Outlines", "client_outlines.py", ("outlines[openai]==1.3.3",)),
    Client("Mirascope", "client_mirascope.py", ("mirascope[openai]==2.8.2",)),
    Client("Agno", "client_agno.py", ("agno[openai]==3.1.10",)),
    Client("Magentic", "client_magentic.py", ("magentic==0.41.1",)),
    Client("Semantic Kernel", "client_semantic_kernel.py", ("semantic-kernel==1.45.0",)),
    Client("guidance", "client_guidance.py", ("guidance[openai]==0.3.1",)),
    Client("CrewAI", "client_crewai.py", ("crewai==1.15.30",)),
    Client("aider", "client_aider.py", ("aider-chat==0.86.2",)),
    Client("LiteLLM's proxy", "client_litellm_proxy.py", ("litellm[proxy]==1.106.2",)),
    Client("Open WebUI", "client_open_webui.py", ("open-webui==0.12.4",)),
    Client("LLM", "client_llm.py", ("llm==0.36",)),
    Client("Strands Agents", "client_strands.py", ("strands-agents[anthropic,ollama,openai]==1.62.0",)),
    Client("lm-eval", "client_lm_eval.py", ("lm_eval[api]==0.4.13", "transformers==5.24.0")),
    Client("OpenAI, JavaScript", "openai.mjs", ("openai@6.49.0",)),
    Client("Anthropic, JavaScript", "anthropic.mjs", ("@anthropic-ai/sdk@1.12.0",)),
    Client("Ollama, JavaScript", "ollama.mjs", ("ollama@0.6.4",)),
    Client("AI SDK", "ai_sdk.mjs", ("@ai-sdk/openai-compatible@2.0.92", "ai@6.0.326")),
    Client("AI SDK, Anthropic", "ai_sdk_anthropic.mjs", ("@ai-sdk/anthropic@3.0.140", "ai@6.0.326")),
    Client(
        "LangChain.js, Anthropic", "langchain_anthropic.mjs", ("@langchain/anthropic@1.5.11", "@langchain/core@1.4.0")
    ),
    Client("LangChain.js, Ollama", "langchain_ollama.mjs", ("@langchain/ollama@1.3.0", "@langchain/core@1.4.0")),
    Client("LangChain.js", "langchain.mjs", ("@langchain/openai@1.5.8", "@langchain/core@1.4.0")),
    Client("Continue", "continue.mjs", ("@continuedev/cli@1.5.47",)),
    Client("OpenAI Agents, JavaScript", "openai_agents.mjs", ("@openai/agents@0.20.0", "openai@6.49.0", "zod@4.6.7")),
]
