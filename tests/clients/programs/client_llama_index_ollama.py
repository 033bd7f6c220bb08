from clients_common import MODEL, URL, check, run
from llama_index.core.llms import ChatMessage
from llama_index.llms.ollama import Ollama

llm = Ollama(model=MODEL, base_url=URL, request_timeout=60, additional_kwargs={"num_predict": 10})
MESSAGES = [ChatMessage(role="user", content="Once upon a time")]


@check
def chat():
    return llm.chat(MESSAGES).message.content


@check
def stream():
    return "".join(part.delta or "" for part in llm.stream_chat(MESSAGES))


@check
def completion():
    return llm.complete("Once upon a time").text


run()
