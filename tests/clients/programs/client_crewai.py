import os

from clients_common import MESSAGES, MODEL, URL, run

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", CREWAI_TRACING_ENABLED="false", OTEL_SDK_DISABLED="true")

from crewai import LLM, Agent, Crew, Task  # it reads the environment when it is imported


def model(**options):
    return LLM(model=f"openai/{MODEL}", base_url=f"{URL}/v1", api_key="none", max_tokens=20, **options)


def crew():
    agent = Agent(role="Storyteller", goal="Tell stories", backstory="Old", llm=model(), max_iter=1)
    task = Task(description="Tell a story.", expected_output="A story", agent=agent)
    return Crew(agents=[agent], tasks=[task]).kickoff().raw


run(chat=lambda: model().call(MESSAGES), stream=lambda: model(stream=True).call(MESSAGES), crew=crew)
