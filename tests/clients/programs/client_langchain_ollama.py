from typing import Literal

from clients_common import MODEL, URL, check, run
from langchain_ollama import ChatOllama, OllamaEmbeddings
from pydantic import BaseModel


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "Rome"]


llm = ChatOllama(model=MODEL, base_url=URL, num_predict=10)


@check
def chat():
    return llm.invoke("Once upon a time").content


@check
def stream():
    return "".join(chunk.content for chunk in llm.stream("Once upon a time"))


@check
def structured():
    return ChatOllama(model=MODEL, base_url=URL).with_structured_output(City).invoke("Once").name


@check
def embeddings():
    return OllamaEmbeddings(model=MODEL, base_url=URL).embed_documents(["a", "b"])[1]


run()
