from clients_common import CHOICE, FORM, MESSAGES, MODEL, TOOL, URL, run, text_of
from huggingface_hub import InferenceClient

client = InferenceClient(base_url=f"{URL}/v1", api_key="none")


def ask(**options):
    return client.chat_completion(MESSAGES, model=MODEL, **options).choices[0].message


run(
    chat=lambda: ask(max_tokens=10).content,
    stream=lambda: text_of(client.chat_completion(MESSAGES, model=MODEL, max_tokens=10, stream=True)),
    tools=lambda: ask(tools=[TOOL], tool_choice=CHOICE).tool_calls[0].function.arguments,
    structured=lambda: "city" in ask(response_format=FORM).content,
)
