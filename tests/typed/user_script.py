"""A user's script, which mypy checks with the packages and nobody runs: right options pass, wrong ones are errors.

``warn_unused_ignores`` turns an error that mypy no longer finds into one that it reports.
"""

from typing import Unpack

import pumice

MESSAGES = [{"role": "user", "content": "Hello"}]
TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}


def use_options() -> None:
    """Every form in which options are given."""
    params = {"temperature": 0.3, "top_p": 0.9}
    config = {"cpu": {"threads": 2}}
    with pumice.load(n_ctx=256, n_parallel=2, kv_type="q8_0", sampling={"top_k": 3}, config=config) as model:
        text: str = model.generate("Once", sampling=params, max_tokens=None, stop="x", seed=3).text
        several: list[pumice.Completion] = model.generate(text, n=2, logit_bias={3: 1.0}, sampling={"no_repeat": 3})
        pieces = [piece.text for piece in model.stream("Once", json_schema=SCHEMA)]
        model.generate_many(pieces, each=[{"seed": 1}, {"seed": 2, "max_tokens": 3}], top_k=1)
        model.chat(MESSAGES, tools=TOOLS, reasoning=False, temperature=0)
        model.template.apply(MESSAGES, chat_template="chatml")
        model.request(several[0].tokens, n=2)


def pass_options_on(model: pumice.Model, name: str, **options: Unpack[pumice.GenerateOptions]) -> str:
    """A function of one's own that takes the options of ``generate``."""
    return model.generate(f"Once upon a time, {name}", **options).text


async def use_options_in_coroutines(model: pumice.Model) -> str:
    """Use the same options in coroutines."""
    async for piece in model.astream("Once", top_p=0.5):
        print(piece.text)
    async for delta in model.achat_stream(MESSAGES, max_tokens=3):
        print(delta.content)
    return (await model.agenerate("Once", temperature=0.5)).text


def use_wrong_options(model: pumice.Model) -> None:
    """A misspelt name, and a value of a wrong type, in every function that takes options."""
    pumice.load(n_paralel=2)  # type: ignore[call-arg]
    pumice.load(kv_type="q9_9")  # type: ignore[arg-type]
    model.generate("Once", temprature=1)  # type: ignore[call-overload]
    model.generate("Once", temperature="hot")  # type: ignore[call-overload]
    model.stream("Once", max_token=5)  # type: ignore[call-arg]
    model.astream("Once", stop=5)  # type: ignore[arg-type]
    model.generate_many(["Once"], seeds=[1])  # type: ignore[call-arg]
    model.generate_many(["Once"], each=[{"seeds": 1}])  # type: ignore[typeddict-unknown-key]
    model.request("Once", timeout="soon")  # type: ignore[arg-type]
    model.chat(MESSAGES, tool=TOOLS)  # type: ignore[call-arg]
    model.chat_stream(MESSAGES, reasoning="yes")  # type: ignore[arg-type]
    model.achat_stream(MESSAGES, diffusion_algorithm="magic")  # type: ignore[arg-type]
    model.template.apply(MESSAGES, temperature=1)  # type: ignore[call-arg]
