from clients_city import City
from clients_common import MODEL, URL, run
from langchain_ollama import ChatOllama, OllamaEmbeddings

llm = ChatOllama(model=MODEL, base_url=URL, num_predict=10)


run(
    chat=lambda: llm.invoke("Once upon a time").content,
    stream=lambda: "".join(chunk.content for chunk in llm.stream("Once upon a time")),
    structured=lambda: ChatOllama(model=MODEL, base_url=URL).with_structured_output(City).invoke("Once").name,
    embeddings=lambda: OllamaEmbeddings(model=MODEL, base_url=URL).embed_documents(["a", "b"])[1],
)
