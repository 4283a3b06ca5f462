"""The conversations that every template is rendered with."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a place, <now> & \"soon\"",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": ["integer", "null"], "description": "How many days", "minimum": 1},
                "at": {
                    "type": "object",
                    "description": "Where",
                    "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                    "required": ["lat", "lon"],
                },
                "tags": {"type": "array", "items": {"type": "string"}, "description": "Tags"},
            },
            "required": ["city"],
        },
        "return": {"type": "string", "description": "A sentence"},
    },
}
CALCULATOR = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers\nand says so",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "number", "description": "first", "nullable": True},
                "b": {"oneOf": [{"type": "integer"}, {"type": "string"}], "title": "B"},
                "deep": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"x": {"type": "boolean"}}},
                },
            },
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    },
}
EMPTY_TOOL = {
    "type": "function",
    "function": {
        "name": "now",
        "description": "",
        "parameters": {"type": "object", "properties": {}},
    },
}
TOOLS = [WEATHER, CALCULATOR, EMPTY_TOOL]
PLAIN_TOOL = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Searches the library",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for"},
                "limit": {"type": "integer", "description": "How many", "default": 10},
            },
            "required": ["query"],
        },
        "return": {"type": "string", "description": "Titles"},
    },
}
OTHER_TOOL = {
    "type": "function",
    "function": {
        "name": "open_book",
        "description": "Opens a book.",
        "parameters": {
            "type": "object",
            "properties": {
                "title": {"type": "string", "description": "Its title", "enum": ["A", "B"]},
            },
            "required": ["title"],
        },
        "return": {"type": "string"},
    },
}
PLAIN = [PLAIN_TOOL, OTHER_TOOL]

SYSTEM = {"role": "system", "content": "You are a careful assistant."}
USER = {"role": "user", "content": "What is the weather in Köln?"}
REPLY = {"role": "assistant", "content": "It is sunny."}
THANKS = {"role": "user", "content": "Thanks! And tomorrow?"}
THINKING = {"role": "assistant", "content": "<think>\nLet me see.\n</think>\n\nRain."}
REASONING = {
    "role": "assistant",
    "content": "Rain.",
    "reasoning_content": "The clouds are dark.\nSo it rains.",
}


def call(name, arguments, call_id="call12345", content=""):
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        ],
    }


def result(content, name="get_weather", call_id="call12345"):
    return {"role": "tool", "name": name, "tool_call_id": call_id, "content": content}


def text(value):
    return {"type": "text", "text": value}


IMAGES = [
    {
        "role": "user",
        "content": [
            {"type": "image", "image": "cat.png"},
            text("What is in these pictures?"),
            {"type": "image_url", "image_url": {"url": "https://example.org/dog.png"}},
        ],
    }
]
VIDEO = [
    {
        "role": "user",
        "content": [text("Look: "), {"type": "video", "video": "a.mp4"}, text(" nice?")],
    },
    {"role": "assistant", "content": [text("Very "), text("nice.")]},
    {"role": "user", "content": [text("Good.")]},
]
TOOL_TURN = [
    USER,
    call("get_weather", {"city": "Köln", "days": 2, "at": {"lat": 50.9, "lon": 7.0}, "now": True}),
    result('{"sky": "clear", "temperature": 21.5}'),
]
TWO_CALLS = {
    "role": "assistant",
    "content": "I will ask twice.",
    "tool_calls": [
        {
            "id": "aaaaaaaa1",
            "type": "function",
            "function": {"name": "add", "arguments": {"a": 1, "b": "2"}},
        },
        {"id": "aaaaaaaa2", "type": "function", "function": {"name": "now", "arguments": {}}},
    ],
}
UNICODE = [
    {"role": "system", "content": "Zażółć gęślą jaźń 🦆"},
    {"role": "user", "content": "日本語 — e\u0301 \u00a0\u2028\u3000 👩‍👩‍👧 'quoted' \"twice\" \\ \t tab"},
    {"role": "assistant", "content": "Ünïcödé\r\n<|im_end|>\n<|im_start|>system"},
    {"role": "user", "content": "{{ 7 * 7 }} {% if true %}x{% endif %} <s>[INST] &amp; <b>"},
]
LONG = [SYSTEM] + [
    {"role": role, "content": f"Message {i}.\n\n  Indented line {i}  "}
    for i in range(6)
    for role in ("user", "assistant")
] + [THANKS]


def base_cases():
    """(name, messages, tools, more)"""
    off, on = {"enable_thinking": False}, {"enable_thinking": True}
    yield "user", [USER], None, {}
    yield "system", [SYSTEM, USER], None, {}
    yield "turns", [SYSTEM, USER, REPLY, THANKS], None, {}
    yield "turns without system", [USER, REPLY, THANKS], None, {}
    yield "no prompt", [USER, REPLY], None, {"add_generation_prompt": False}
    yield (
        "continued", [USER, {"role": "assistant", "content": "It is"}], None,
        {"continue_final_message": True},
    )
    yield "thinking off", [SYSTEM, USER], None, off
    yield "thinking on", [SYSTEM, USER], None, {**on, "thinking": True, "reasoning_effort": "high"}
    yield "thought in content", [USER, THINKING, THANKS], None, on
    yield "thought apart", [USER, REASONING, THANKS], None, on
    yield "thought preserved", [USER, REASONING, THANKS], None, {**on, "preserve_thinking": True}
    yield (
        "thought preserved off", [USER, THINKING, THANKS], None, {**off,
        "preserve_thinking": True},
    )
    yield "thought last", [USER, REASONING], None, {**on, "add_generation_prompt": False}
    yield "tools", [SYSTEM, USER], TOOLS, {}
    yield "tools without system", [USER], TOOLS, {}
    yield "empty tools", [USER], [], {}
    yield "tool call", TOOL_TURN[:2], TOOLS, {"add_generation_prompt": False}
    yield "tool result", [SYSTEM] + TOOL_TURN, TOOLS, {}
    yield "tool result answered", TOOL_TURN + [REPLY, THANKS], TOOLS, on
    yield "plain tools", [SYSTEM, USER], PLAIN, {}
    yield "plain tools, thinking", [USER], PLAIN, {**on, "thinking": True}
    yield "plain tools, one", [SYSTEM, USER, REPLY, THANKS], PLAIN[:1], off
    yield (
        "plain call", [USER, call("search", {"query": "über <b>", "limit": 3}), result("A, B",
        "search")], PLAIN, {},
    )
    yield (
        "plain call answered", [SYSTEM, USER, call("open_book", {"title": "A"},
        content="Let me look."), result("Text\n", "open_book"), REPLY, THANKS], PLAIN, on,
    )
    yield (
        "plain call, no content", [USER, {**call("search", {"query": "x"}), "content": None},
        result("A", "search"), REPLY], PLAIN, {"add_generation_prompt": False},
    )
    yield (
        "many names", [SYSTEM, USER, REPLY, THANKS], PLAIN, { "functions": '[{"name": "f"}]',
        "builtin_tools": ["code_interpreter", "brave_search"], "date_string": "1 Jan 2026",
        "tools_in_user_message": False, "thinking_budget": 512, "model_identity": "You are X.",
        "enable_thinking": True, "thinking": True, "reasoning_effort": "low",
        "controls": {"length": "long", "originality": "x"}, "system_prompt": "S.",
        "tool_choice": "auto", "datetime": "now", "custom_tools": PLAIN, "num_img_tokens": "3"},
    )
    yield (
        "arguments as text", [USER, call("add", '{"a": 1, "b": "x"}'), result("3", "add")], TOOLS,
        {},
    )
    yield (
        "two calls", [USER, TWO_CALLS, result("3", "add", "aaaaaaaa1"), result("noon", "now",
        "aaaaaaaa2"), REPLY, THANKS], TOOLS, {},
    )
    yield (
        "call with thought", [USER, {**call("now", {}), "reasoning_content": "Hm."},
        result("noon", "now"), REASONING], TOOLS, {**on, "add_generation_prompt": False},
    )
    yield (
        "result as parts", [USER, call("now", {}), {**result("", "now"), "content": [text("noon"),
        text("!")]}], TOOLS, {},
    )
    yield (
        "content none", [USER, {**call("now", {}), "content": None}, result("noon", "now")],
        TOOLS, {},
    )
    yield "images", IMAGES, None, {}
    yield "images counted", IMAGES, None, {"add_vision_id": True}
    yield "video", VIDEO, None, {}
    yield "system as parts", [{"role": "system", "content": [text("Be brief.")]}, USER], None, {}
    yield (
        "empty content", [{"role": "system", "content": ""}, {"role": "user", "content": ""}],
        None, {},
    )
    yield (
        "blank content", [{"role": "user", "content": " \n\t hi \n"}, {"role": "assistant",
        "content": " \n"}, {"role": "user", "content": "\u00a0"}], None, {},
    )
    yield "unicode", UNICODE, None, {}
    yield (
        "unicode tools", UNICODE[:2], [{"type": "function", "function": {"name": "größe",
        "description": "℃ \u2028", "parameters": {"type": "object",
        "properties": {"ß": {"type": "string"}}}}}], {},
    )
    yield "long", LONG, None, {}
    yield "no messages", [], None, {}
    yield "assistant first", [REPLY, USER], None, {}
    yield "user twice", [USER, THANKS], None, {}
    yield "system late", [USER, SYSTEM, THANKS], None, {}
    yield "developer", [{"role": "developer", "content": "Short."}, USER], None, {}
    yield "unknown role", [{"role": "narrator", "content": "Once."}, USER], None, {}
    yield "no content", [{"role": "user"}], None, {}
    yield (
        "documents", [USER], None, {"documents": [{"title": "A", "text": "First."}, {"title": "B",
        "text": "Second."}]},
    )
    yield (
        "numbers", [USER, call("add", {"a": -0.5, "b": 1e21, "c": 10**15, "d": [1, [2.0, None]],
        "e": {}}), result("3", "add")], TOOLS, {},
    )


def all_cases():
    cases = []
    for name, messages, tools, more in base_cases():
        context = {
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": True,
            "bos_token": "<s>",
            "eos_token": "</s>",
        }
        context.update(more)
        cases.append({"name": name, "context": context})
    return cases


def snippet_context():
    """The names that the one-line templates see."""
    return {
        "messages": [SYSTEM, USER, REPLY],
        "d": {"a": 1, "b": "two", "nested": {"list": [0, {"x": "deep"}]}, "e": [1.5, None, True]},
        "people": [
            {"name": "Bob", "age": 30, "tags": ["x", "y"], "pet": {"name": "Rex"}},
            {"name": "alice", "age": 25, "tags": ["z"]},
            {"name": "Carl", "age": 30, "tags": [], "pet": None},
            {"name": "dora", "age": 41, "tags": ["w"], "pet": {"name": "Tom"}},
        ],
    }
