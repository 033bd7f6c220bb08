from clients_common import MODEL, URL, run
from llama_index.core.llms import ChatMessage
from llama_index.llms.ollama import Ollama

llm = Ollama(model=MODEL, base_url=URL, request_timeout=60, additional_kwargs={"num_predict": 10})
MESSAGES = [ChatMessage(role="user", content="Once upon a time")]


run(
    chat=lambda: llm.chat(MESSAGES).message.content,
    stream=lambda: "".join(part.delta or "" for part in llm.stream_chat(MESSAGES)),
    completion=lambda: llm.complete("Once upon a time").text,
)
