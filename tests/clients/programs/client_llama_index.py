from clients_common import MODEL, URL, run
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

llm = OpenAILike(api_base=f"{URL}/v1", api_key="none", model=MODEL, is_chat_model=True, max_tokens=10)
MESSAGES = [ChatMessage(role="user", content="Once upon a time")]


run(
    chat=lambda: llm.chat(MESSAGES).message.content,
    stream=lambda: "".join(part.delta or "" for part in llm.stream_chat(MESSAGES)),
)
