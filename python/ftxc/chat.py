"""chat.py - conversations: messages to the ids of a prompt, by the chat template of the artifact."""
from __future__ import annotations

import ctypes
import json
from typing import Any, Optional, Union

from . import _abi
from .library import call, chars


def is_messages(prompt: Any) -> bool:
    """A list of messages, each a dict with role and content, as transformers and OpenAI have them."""
    return isinstance(prompt, (list, tuple)) and bool(prompt) and isinstance(prompt[0], dict)


def _render(function: str, model: Any, item: Any, settings: dict[str, Any], tools: Any, template: Optional[str],
            add_generation_prompt: bool) -> Any:
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


def render(model: Any, messages: Any, *, tools: Any = None, template: Optional[str] = None, tokenize: bool = True,
           add_generation_prompt: bool = True, **variables: Any) -> Union[list[int], str]:
    """Ids, or with tokenize=False the text, of a conversation; see Model.apply_chat_template."""
    settings = {"messages": list(messages), "variables": variables or None}
    if tokenize:
        return _render("ftx_chat", model, ctypes.c_int32, settings, tools, template, add_generation_prompt)
    data = _render("ftx_chat_text", model, ctypes.c_char, settings, tools, template, add_generation_prompt)
    return data.decode("utf-8", "replace")
