from clients_city import City
from clients_common import MODEL, URL, run
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

KEY = {"base_url": f"{URL}/v1", "api_key": "none", "model": MODEL}
llm = ChatOpenAI(max_tokens=10, **KEY)


run(
    chat=lambda: llm.invoke("Once upon a time").content,
    stream=lambda: "".join(chunk.content for chunk in llm.stream("Once upon a time")),
    tools=lambda: ChatOpenAI(**KEY).bind_tools([City], tool_choice="City").invoke("Once").tool_calls[0]["name"],
    structured=lambda: ChatOpenAI(**KEY).with_structured_output(City).invoke("Once").name,
    embeddings=lambda: OpenAIEmbeddings(check_embedding_ctx_length=False, **KEY).embed_documents(["a", "b"])[1],
)
