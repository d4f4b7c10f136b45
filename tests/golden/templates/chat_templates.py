"""Writes chat_templates.json: conversations in published chat templates, and pieces of the template language, rendered by
Jinja2 in the environment of Hugging Face's transformers.

python3 tests/golden/templates/chat_templates.py TEMPLATES     (PyPI: transformers, jinja2; the file was made with 5.23.0 and 3.1.6)

TEMPLATES is the folder vendor/llama.cpp/models/templates of PyPI's llama-cpp-python 0.3.36 in source form. Only templates of
models under the Apache 2.0 or MIT licence are taken from there. conversations.json holds what chat_template_test.ts asks of two
tokenizers.
"""

import json
import os
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template

HERE = os.path.dirname(__file__)
PUBLISHED = {
    "Qwen3": "Qwen-Qwen3-0.6B",
    "Qwen2.5": "Qwen-Qwen2.5-7B-Instruct",
    "QwQ": "Qwen-QwQ-32B",
    "Qwen3-Coder": "Qwen3-Coder",
    "Mistral Small 3.2": "Mistral-Small-3.2-24B-Instruct-2506",
    "Mistral Nemo": "mistralai-Mistral-Nemo-Instruct-2407",
    "Phi-3.5": "microsoft-Phi-3.5-mini-instruct",
    "DeepSeek R1": "llama-cpp-deepseek-r1",
    "DeepSeek V3.1": "deepseek-ai-DeepSeek-V3.1",
    "SmolLM3": "HuggingFaceTB-SmolLM3-3B",
    "GLM-4.6": "GLM-4.6",
    "gpt-oss": "openai-gpt-oss-120b",
}

# What the templates of Llama 3 and Gemma 3 do, in words of our own.
OWN = {
    "headers": """{{- bos_token }}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<head>system</head>\\n\\n" }}
{%- if tools is not none %}
    {{- "Tools:\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}{{- "<end>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<head>' + message['role'] + '</head>\\n\\n'+ message['content'] | trim + '<end>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("one call at a time") }}{%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<head>assistant</head>\\n\\n' }}
        {{- tool_call.name + "(" }}
        {%- for name, value in tool_call.arguments | items %}
            {{- name + '="' ~ value ~ '"' }}{%- if not loop.last %}{{ ", " }}{%- endif %}
        {%- endfor %}
        {{- ")<end>" }}
    {%- elif message.role == "tool" %}
        {%- if message.content is mapping or message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- '<head>tool</head>\\n\\n' ~ message.content ~ '<end>' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<head>assistant</head>\\n\\n' }}{%- endif %}
""",
    "turns": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first = messages[0]['content'] + '\\n\\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    {{ '<turn>' + role + '\\n' + (first if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '</turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<turn>model\\n'}}
{%- endif -%}
""",
}

TOOLS = [
    {"type": "function", "function": {
        "name": "weather", "description": "Says \"how\" it is – 天气 <b>&'", "parameters": {
            "type": "object", "properties": {
                "city": {"type": "string", "description": "a city", "enum": ["Ulm", "Bonn"]},
                "days": {"type": "integer", "default": 3},
                "step": {"type": "number", "minimum": 0.5, "multipleOf": 1e-05},
                "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}}},
            "required": ["city"]}}},
    {"type": "function", "function": {
        "name": "now", "description": "time", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"id": "abcdefghi", "type": "function", "function": {
    "name": "weather", "arguments": {"city": "Ulm", "days": 2, "step": 0.1, "exact": True, "none": None,
                                     "deep": {"a": [1, 2.5, "é\"\n😀"]}}}}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def tool(content):
    return {"role": "tool", "name": "weather", "tool_call_id": "abcdefghi", "content": content}


SYSTEM = {"role": "system", "content": "Be brief.\nAlways."}
CONVERSATIONS = [
    [user("\n\n hello \n")],
    [SYSTEM, user("Hi"), assistant(" b \n"), user("Ünïcödé 天气 😀 \u2028 ſ")],
    [user("a"), assistant("<think>\nhm\n</think>\n\nb"), user("c"), assistant("\n<think>\n\n</think>\n\n\nd</think>e"), user("f")],
    [SYSTEM, user("a"), assistant("b", reasoning_content="\nfirst\n"), user("c"), assistant("d", reasoning_content="x")],
    [SYSTEM, user("weather?"), assistant("", tool_calls=[CALL]), tool("sunny"), assistant("It is."), user("thanks")],
    [user("weather?"), assistant(None, tool_calls=[CALL]), tool("{\"t\": 1.5}")],
    [user("weather?"), {"role": "assistant", "tool_calls": [CALL, CALL]}, tool("a"), tool("b")],
]
OPTIONS = [
    {"add_generation_prompt": True},
    {"add_generation_prompt": False, "enable_thinking": True},
    {"add_generation_prompt": True, "enable_thinking": False, "tools": TOOLS},
]


def render(template, variables):
    """The text, or null where Jinja refuses."""
    try:
        return _compile_jinja_template(template).render(**variables)
    except Exception:
        return None


def conversations(template):
    knows_tools = "tools" in template
    for messages in range(len(CONVERSATIONS)):
        for options in range(len(OPTIONS)):
            given = {"tools": None, **OPTIONS[options]}
            if given["tools"] and not knows_tools:
                continue
            variables = {"messages": CONVERSATIONS[messages], "documents": None, "bos_token": "<s>", "eos_token": "</s>"}
            yield [messages, options, render(template, {**variables, **given})]


def prompts(template, named, tools):
    """Texts of named conversations, one for each of the options of chat_template_test.ts."""
    base = {"tools": None, "documents": None, "bos_token": "", "eos_token": ""}
    options = [{}, {"enable_thinking": False}, {"enable_thinking": True}, {"add_generation_prompt": False}] + tools
    return {name: [render(template, {**base, "add_generation_prompt": True, **option, "messages": messages})
                   for option in options] for name, messages in named.items()}


with open(os.path.join(HERE, "template_language.txt")) as file:
    PIECES = file.read().split("\n%%\n")
templates = {name: open(os.path.join(sys.argv[1], f"{file}.jinja")).read() for name, file in PUBLISHED.items()}
templates.update(OWN)
with open(os.path.join(HERE, "conversations.json")) as file:
    NAMED = json.load(file)
with open(os.path.join(HERE, "../../../examples/models/tiny-qwen3/tokenizer_config.json")) as file:
    TINY = json.load(file)["chat_template"]
VARIABLES = {"messages": [{"role": "system", "content": "sys a,b"}, {"role": "user", "content": "Hi <x>"}]}
with open(os.path.join(HERE, "chat_templates.json"), "w") as file:
    json.dump({
        "conversations": CONVERSATIONS,
        "options": OPTIONS,
        "templates": {name: {"template": text, "rows": list(conversations(text))} for name, text in templates.items()},
        "prompts": {
            "Qwen3": prompts(templates["Qwen3"], {**NAMED["plain"], **NAMED["qwen3"]}, [{"tools": NAMED["tools"]}]),
            "tiny-qwen3": prompts(TINY, NAMED["plain"], []),
        },
        "variables": VARIABLES,
        "language": [[piece, render(piece, VARIABLES)] for piece in PIECES],
    }, file, ensure_ascii=False)
