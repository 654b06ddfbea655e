"""chat.py - conversations: messages to the ids of a prompt, by the chat template of the artifact."""
import ctypes
import json

from . import _abi
from .library import call, chars


def is_messages(prompt):
    """A list of messages, each a dict with role and content, as transformers and OpenAI have them."""
    return isinstance(prompt, (list, tuple)) and bool(prompt) and isinstance(prompt[0], dict)


def _render(function, model, item, settings, tools, template, add_generation_prompt):
    chat = _abi.FtxChat(size=ctypes.sizeof(_abi.FtxChat), add_generation_prompt=add_generation_prompt)
    kept = []
    for field, value in (("json", settings["messages"]), ("tools", tools), ("variables", settings["variables"])):
        if value is not None:
            kept.append(json.dumps(value).encode())
            setattr(chat, field, chars(kept[-1]))
    if template is not None:
        kept.append(template.encode())
        chat.template_name = chars(kept[-1])
    room, n = 1024, ctypes.c_size_t()
    while True:
        out = (item * room)()
        call(function, model, ctypes.byref(chat), out, room, ctypes.byref(n))
        if n.value <= room:
            return out[:n.value]
        room = n.value


def render(model, messages, *, tools=None, template=None, tokenize=True, add_generation_prompt=True, **variables):
    """Ids, or with tokenize=False the text, of a conversation; see Model.apply_chat_template."""
    settings = {"messages": list(messages), "variables": variables or None}
    if tokenize:
        return _render("ftx_chat", model, ctypes.c_int32, settings, tools, template, add_generation_prompt)
    data = _render("ftx_chat_text", model, ctypes.c_char, settings, tools, template, add_generation_prompt)
    return data.decode("utf-8", "replace")
