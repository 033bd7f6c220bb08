from typing import Literal

from clients_common import MODEL, URL, check, run
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

KEY = {"base_url": f"{URL}/v1", "api_key": "none", "model": MODEL}
llm = ChatOpenAI(max_tokens=10, **KEY)


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "Rome"]


@check
def chat():
    return llm.invoke("Once upon a time").content


@check
def stream():
    return "".join(chunk.content for chunk in llm.stream("Once upon a time"))


@check
def tools():
    return ChatOpenAI(**KEY).bind_tools([City], tool_choice="City").invoke("Once").tool_calls[0]["name"]


@check
def structured():
    return ChatOpenAI(**KEY).with_structured_output(City).invoke("Once").name


@check
def embeddings():
    return OpenAIEmbeddings(check_embedding_ctx_length=False, **KEY).embed_documents(["a", "b"])[1]


run()
