"""Answers as models write them, odd ones among them: the chat format, what the prompt began, the text, its parts."""

CALL = '{"name": "get_weather", "arguments": {"city": "12", "days": 3}}'
READ = ("call", "get_weather", {"city": "12", "days": 3})
ANSWERS = {
    "reasoning": (
        "hermes", "", "<think>\nWell </thin\n</think>\n\nHello <b> \n",
        [("reasoning", "Well </thin"), ("content", "Hello <b> \n")],
    ),
    "reasoning opened by the prompt": (
        "hermes", "<think>\n", "Well\n</think>\n\nHi", [("reasoning", "Well"), ("content", "Hi")],
    ),
    "reasoning closed by the prompt": ("hermes", "<think>\n\n</think>\n\n", "Hi", [("content", "Hi")]),
    "reasoning without an end": ("hermes", "<think>", "Well, \n", [("reasoning", "Well,")]),
    "text and calls": ("hermes", "", f"<tool_call>{CALL}</tool_call>\nand", [READ, ("content", "and")]),
    "a mark in a JSON string": (
        "hermes", "", '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>\\"}"}}</tool_call>',
        [("call", "f", {"a": '</tool_call>"}'})],
    ),
    "a call that is none": (
        "hermes", "", "<tool_call> nonsense </tool_call> ok", [("content", "<tool_call> nonsense </tool_call> ok")],
    ),
    "a call cut short": ("hermes", "", "so <tool_call>" + CALL[:-4], [("content", "so <tool_call>" + CALL[:-4])]),
    "a call without its end": ("granite", "", f"<tool_call>{CALL}", [READ]),
    "arguments as JSON text": (
        "hermes", "", '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', [("call", "f", {"a": 1})],
    ),
    "no arguments": ("hermes", "", '<tool_call>{"name": "f"}</tool_call>', [("call", "f", {})]),
    "Llama 3's JSON": ("llama3", "", CALL.replace("arguments", "parameters"), [READ]),
    "Llama 3's JSON of no tool": (
        "llama3", "", '{"name": "x", "parameters": {}} is JSON',
        [("content", '{"name": "x", "parameters": {}} is JSON')],
    ),
    "Llama 3's JSON later on": ("llama3", "", "I say " + CALL, [("content", "I say " + CALL)]),
    "Llama 3's Python tag": ("llama3", "", f"<|python_tag|>{CALL}", [READ]),
    "Llama 4's Python": ("llama4", "", "[get_weather(city='12', days=3)]", [READ]),
    "Python that is no call": ("llama4", "", "[1, 2, print]", [("content", "[1, 2, print]")]),
    "Python with JSON's names": (
        "lfm2", "", '<|tool_call_start|>[f(a=true, b=[null, {"c": -1}])]<|tool_call_end|>',
        [("call", "f", {"a": True, "b": [None, {"c": -1}]})],
    ),
    "Python that would run": (
        "lfm2", "", "<|tool_call_start|>[f(a=g())]<|tool_call_end|>",
        [("content", "<|tool_call_start|>[f(a=g())]<|tool_call_end|>")],
    ),
    "Mistral's arguments": (
        "mistral", "", '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]x1[ARGS]{}',
        [("call", "f", {"a": 1}), ("call", "g", {})],
    ),
    "Functionary's recipients": (
        "functionary-v3.2", ">>>", 'all\nHello>>>f\n{"a": 1}', [("content", "Hello"), ("call", "f", {"a": 1})],
    ),
    "harmony": (
        "harmony", "<|start|>assistant",
        "<|channel|>analysis<|message|>Well<|end|><|start|>assistant"
        '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}',
        [("reasoning", "Well"), ("call", "f", {"a": 1})],
    ),
    "harmony's answer": ("harmony", "<|start|>assistant", "<|channel|>final<|message|>Hi", [("content", "Hi")]),
    "harmony's recipient first": (
        "harmony", "<|start|>assistant", ' to=functions.f<|channel|>commentary json<|message|>{"a": 1}',
        [("call", "f", {"a": 1})],
    ),
    "text or JSON by the schema": (
        "qwen3-coder", "",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        [READ],
    ),
    "arguments of an unknown tool": (
        "glm", "", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>[1]</arg_value>\n</tool_call>",
        [("call", "f", {"a": [1]})],
    ),
    "text or JSON by a mark": (
        "deepseek-v4", "",
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n'
        '<｜DSML｜parameter name="a" string="true">1</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="b" string="false">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
        [("call", "f", {"a": "1", "b": 1})],
    ),
    "a tag for each argument": (
        "minimax-m3", "",
        ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="f">]<]minimax[>[<a>x]<]minimax[>[</a>'
        "]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
        [("call", "f", {"a": "x"})],
    ),
    "Gemma's quotes": (
        "gemma4", "", '<|tool_call>call:f{a:<|"|>x{y:"<|"|>,b:{c:[1,true]}}<tool_call|>',
        [("call", "f", {"a": 'x{y:"', "b": {"c": [1, True]}})],
    ),
    "the name as the key": (
        "apertus", "", '<|tools_prefix|>[{"f": {"a": 1}}]<|tools_suffix|>', [("call", "f", {"a": 1})],
    ),
    "a name in an id": (
        "kimi-k2", "", '<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>',
        [("call", "f", {"a": 1})],
    ),
    "a call in reasoning that was not ended": (
        "hermes", "<think>\n", f"Well\n<tool_call>{CALL}</tool_call>\n", [("reasoning", "Well"), READ],
    ),
    "calls in reasoning that ends after them": (
        "kimi-k2", "<think>",
        "Well<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{}<|tool_call_begin|>"
        "functions.get_weather:1<|tool_call_argument_begin|>{}</think>",
        [("reasoning", "Well"), ("call", "get_weather", {}), ("call", "get_weather", {})],
    ),
    "a call that reasoning speaks of": (
        "hermes", "<think>\n", f"I could <tool_call>{CALL}</tool_call> here.</think>Hi",
        [("reasoning", f"I could <tool_call>{CALL}</tool_call> here."), ("content", "Hi")],
    ),
    "an end of reasoning that never began": ("minimax-m3", "", "</mm:think>Hi", [("content", "Hi")]),
    "an end of reasoning in the text": ("hermes", "", "Hi </think> there", [("content", "Hi </think> there")]),
    "reasoning that the prompt began": (
        "hermes", "<think>\nI am", " well.</think>Hi", [("reasoning", " well."), ("content", "Hi")],
    ),
    "a channel that is not there": (
        "gemma4", "", "<|channel><|channel>thought\n<channel|>Hi<channel|>", [("content", "Hi")],
    ),
    "harmony's call while it reasons": (
        "harmony", "<|start|>assistant", " to=functions.f<|channel|>analysis <|constrain|>json<|message|>{}",
        [("call", "f", {})],
    ),
    "harmony's JSON": (
        "harmony", "<|start|>assistant", "<|channel|>final <|constrain|>json<|message|>{}", [("content", "{}")],
    ),
    "Muse's recipients": (
        "muse", "<|start|>assistant",
        " to=self<|message|>Well<|eom|><|start|>assistant to=user<|message|>I look.<|eom|><|start|>assistant"
        " to=get_weather<|message|><atem:function_calls>\n"
        '<atem:invoke name="get_weather">\n<atem:parameter name="days">3</atem:parameter>\n</atem:invoke>\n'
        "</atem:function_calls>",
        [("reasoning", "Well"), ("content", "I look."), ("call", "get_weather", {"days": 3})],
    ),
    "tags in tags": (
        "minimax-m3", "",
        ']<]minimax[>[<invoke name="f">]<]minimax[>[<a>]<]minimax[>[<b>1]<]minimax[>[</b>]<]minimax[>[<c>]<]minimax[>['
        "<item>x]<]minimax[>[</item>]<]minimax[>[</c>]<]minimax[>[</a>]<]minimax[>[<d>]<]minimax[>[</d>]<]minimax[>[</invoke>",
        [("call", "f", {"a": {"b": 1, "c": ["x"]}, "d": ""})],
    ),
    "character data": (
        "minicpm", "", '<function name="f"><param name="a"><![CDATA[\n<b> </param>\n]]></param></function>',
        [("call", "f", {"a": "\n<b> </param>\n"})],
    ),
    "Command R's actions": (
        "command-r", "", 'Action:```json\n[\n{"tool_name": "f", "parameters": {"a": 1}}]```', [("call", "f", {"a": 1})],
    ),
    "Solar's ids": (
        "solar", "<|begin|>assistant",
        "<|think|>Well<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1<|tool_call:name|>f<|tool_call:args|>{}"
        "<|tool_call:end|>",
        [("reasoning", "Well"), ("call", "f", {})],
    ),
    "InternLM's plugin": (
        "internlm", "", 'I look.<|action_start|><|plugin|>\n{"name": "f", "parameters": {"a": 1}}<|action_end|>',
        [("content", "I look."), ("call", "f", {"a": 1})],
    ),
    "LongCat's tags": (
        "longcat", "",
        "<longcat_think>Well</longcat_think><longcat_tool_call>f\n<longcat_arg_key>a</longcat_arg_key>\n"
        "<longcat_arg_value>1</longcat_arg_value>\n</longcat_tool_call>",
        [("reasoning", "Well"), ("call", "f", {"a": 1})],
    ),
    "Phi 4's list": ("phi4", "", '<|tool_call|>[{"name": "f", "arguments": {}}]<|/tool_call|>', [("call", "f", {})]),
    "FunctionGemma's quotes": (
        "functiongemma", "", "<start_function_call>call:f{a:<escape>x<escape>,b:2}<end_function_call>",
        [("call", "f", {"a": "x", "b": 2})],
    ),
}  # fmt: skip
