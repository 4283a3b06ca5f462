#!/usr/bin/python3
"""Render chat templates with Jinja, set up as the transformers library does it, and print the
results as JSON: the oracle of tests/test_template_oracle.c.

    render_jinja.py FOLDER_OR_FILE...

The output is {"jinja": version, "clock": [...], "conversations": [{"name", "context"}],
"templates": [{"path", "text", "results": [text or null]}],
"snippets": [{"path", "line", "text", "result"}], "snippet_context"}; null stands for an exception.
A file NAME.snippets holds one template per line; NAME.json is a tokenizer_config.json with the
template in chat_template. Needs Debian's python3-jinja2; exit status 77
when that is missing."""

import copy
import datetime
import json
import os
import sys

try:
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    print("render_jinja: python3-jinja2 is not installed", file=sys.stderr)
    sys.exit(77)

import conversations

CLOCK = (2026, 8, 29, 15, 4, 5)


class Generation(jinja2.ext.Extension):
    """{% generation %} of transformers, which only marks a region."""

    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(lineno)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def strftime_now(format):
    return datetime.datetime(*CLOCK).strftime(format)


def make_environment():
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def render(template, context):
    """The text, or None for an exception of any kind."""
    try:
        return template.render(**copy.deepcopy(context))
    except Exception as error:
        if os.environ.get("RENDER_JINJA_VERBOSE"):
            print(type(error).__name__, error, file=sys.stderr)
        return None


def read_template(path):
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    return json.loads(text)["chat_template"] if path.endswith(".json") else text


def render_text(environment, path, text, contexts):
    try:
        template = environment.from_string(text)
    except Exception as error:
        if os.environ.get("RENDER_JINJA_VERBOSE"):
            print(path, type(error).__name__, error, file=sys.stderr)
        return [None] * len(contexts)
    return [render(template, context) for context in contexts]


def render_snippets(environment, path):
    """Every line that is not empty and does not start with ## is a template."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    context = conversations.snippet_context()
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("##"):
            continue
        try:
            result = render(environment.from_string(line), context)
        except Exception:
            result = None
        yield {"path": path, "line": number, "text": line, "result": result}


def main():
    paths = []
    for argument in sys.argv[1:]:
        if os.path.isdir(argument):
            for name in sorted(os.listdir(argument)):
                if name.endswith((".jinja", ".snippets")):
                    paths.append(os.path.join(argument, name))
        else:
            paths.append(argument)
    cases = conversations.all_cases()
    environment = make_environment()
    templates, snippets = [], []
    for path in paths:
        if path.endswith(".snippets"):
            snippets += render_snippets(environment, path)
            continue
        text = read_template(path)
        results = render_text(environment, path, text, [case["context"] for case in cases])
        templates.append({"path": path, "text": text, "results": results})
    output = {
        "jinja": jinja2.__version__,
        "clock": list(CLOCK),
        "conversations": cases,
        "templates": templates,
        "snippets": snippets,
        "snippet_context": conversations.snippet_context(),
    }
    json.dump(output, sys.stdout, ensure_ascii=False)


main()
