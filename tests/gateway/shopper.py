# A model for clients that bring tools of their own: it asks once for a command, by whatever tool of the request runs
# one, and then says what the command gave. The same in all three formats.
import json
import brains

SHELLS = ("Bash", "bash", "shell", "exec_command", "shell_command", "local_shell")


def tools(body):
    """{name: schema} of the request, in any format."""
    out = {}
    for t in body.get("tools", []):
        f = t.get("function", t)
        if f.get("name"):
            out[f["name"]] = f.get("input_schema") or f.get("parameters") or {}
    return out


def arguments(schema, command):
    """What a tool that runs commands wants to be told."""
    out = {}
    for key, p in schema.get("properties", {}).items():
        if key in ("command", "cmd"):
            out[key] = ["sh", "-c", command] if p.get("type") == "array" else command
        elif key in schema.get("required", []):
            out[key] = "a command"
    return out


def text_of(content):
    if isinstance(content, str):
        return content
    return "".join(b.get("text", "") or b.get("output", "") for b in content or [] if isinstance(b, dict))


def results(path, body):
    """What the tools of this conversation have given."""
    out = []
    if path == "/v1/messages":
        for m in body["messages"]:
            out += [text_of(b.get("content")) for b in m["content"] if not isinstance(b, str) and b["type"] == "tool_result"]
    elif path == "/v1/chat/completions":
        out = [text_of(m["content"]) for m in body["messages"] if m["role"] == "tool"]
    else:
        out = [text_of(i["output"]) for i in body["input"] if i.get("type") == "function_call_output"]
    return out


class Shopper:
    """command: what is asked for until a result has the mark; answer: what is said then, with the result in place of %s.
    calls: names of the tools that it has used."""

    def __init__(self, up, command="echo told-$((40+2))", answer="It says: %s", mark="told-42"):
        self.up, self.command, self.answer, self.mark, self.calls, self.seen, self.n = up, command, answer, mark, [], [], 0

    def __call__(self, c, r):
        path = r.target.split("?")[0]
        self.n += 1
        self.seen.append((path, r.json))
        have, given = tools(r.json), [g for g in results(path, r.json) if self.mark in g]
        shell = next((s for s in SHELLS if s in have), None)
        if not shell:  # a title, a summary
            text, calls = "a title", []
        elif not given:
            text, calls = "I look.", [(shell, arguments(have[shell], self.command))]
            self.calls.append(shell)
        else:
            text, calls = self.answer % given[-1].strip()[-400:], []
        if not r.json.get("stream"):
            return self.up.reply(c, 200, json.dumps(whole(path, text, calls, self.n)).encode())
        return self.up.stream(c, full(path, brains.EVENTS[path](text, calls, self.n)))


def full(path, events):
    """brains' events hold what berthfs reads; clients insist on more."""
    for e in events:
        lines = e.decode().rstrip("\n").split("\n")
        data = lines[-1][len("data: "):]
        if data == "[DONE]":
            yield e
            continue
        o = json.loads(data)
        if path == "/v1/messages":
            if o["type"] == "message_start":
                o["message"] = dict({"type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
                                     "stop_sequence": None}, **o["message"])
                o["message"]["usage"].setdefault("cache_creation_input_tokens", 0)
            if o["type"] == "message_delta":
                o["delta"].setdefault("stop_sequence", None)
        elif path == "/v1/chat/completions":
            o = dict({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}, **o)
            for choice in o["choices"]:
                choice["delta"] = dict({"role": "assistant"}, **choice["delta"])
            if o.get("usage"):
                o["usage"]["total_tokens"] = o["usage"]["prompt_tokens"] + o["usage"]["completion_tokens"]
        else:
            o.setdefault("sequence_number", 1)
            if "response" in o:
                o["response"] = dict({"id": "r", "object": "response", "created_at": 1, "model": "m", "output": [],
                                      "status": "completed" if o["type"].endswith("completed") else "in_progress"}, **o["response"])
                if o["response"].get("usage"):
                    u = o["response"]["usage"]
                    u["total_tokens"] = u["input_tokens"] + u["output_tokens"]
                    u["output_tokens_details"] = {"reasoning_tokens": 0}
            if o.get("item", {}).get("type") == "message":
                o["item"] = dict({"role": "assistant", "status": "completed"}, **o["item"])
                for p in o["item"]["content"]:
                    p.setdefault("annotations", [])
            if o.get("item", {}).get("type") == "function_call":
                o["item"].setdefault("status", "completed")
            if o["type"] == "response.output_text.delta":
                o = dict({"item_id": "m", "content_index": 0, "logprobs": []}, **o)
            if o["type"] == "response.function_call_arguments.delta":
                o.setdefault("item_id", "fc_0")
        head = lines[:-1]
        yield ("\n".join(head + ["data: " + json.dumps(o)]) + "\n\n").encode()


def whole(path, text, calls, n):
    if path == "/v1/messages":
        content = [{"type": "text", "text": text}] + [{"type": "tool_use", "id": "toolu_%d_%d" % (n, k), "name": name, "input": a}
                                                       for k, (name, a) in enumerate(calls)]
        return {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content, "stop_sequence": None,
                "stop_reason": "tool_use" if calls else "end_turn", "usage": {"input_tokens": 100, "output_tokens": 7}}
    if path == "/v1/chat/completions":
        m = {"role": "assistant", "content": text}
        if calls:
            m["tool_calls"] = [{"id": "call_%d" % k, "type": "function", "function": {"name": name, "arguments": json.dumps(a)}}
                               for k, (name, a) in enumerate(calls)]
        return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"index": 0, "message": m,
                "finish_reason": "tool_calls" if calls else "stop"}], "usage": {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}}
    out = [{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": text, "annotations": []}]}]
    out += [{"type": "function_call", "id": "fc_%d" % k, "call_id": "call_%d_%d" % (n, k), "name": name, "arguments": json.dumps(a), "status": "completed"}
            for k, (name, a) in enumerate(calls)]
    return {"id": "r", "object": "response", "created_at": 1, "status": "completed", "model": "m", "output": out,
            "usage": {"input_tokens": 100, "output_tokens": 7, "total_tokens": 107}}
