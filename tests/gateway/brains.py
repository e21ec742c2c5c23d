# A provider's models for the tests: what a conversation says is read from each of the three formats into one, and what
# the model says is written as each format's events.
import json


def norm(path, body):
    """[(who, what)...]: user text; assistant text, thinking, call (id, name, input); result (id, text)."""
    out = []
    if path == "/v1/messages":
        for m in body["messages"]:
            for b in m["content"]:
                if b["type"] == "text":
                    out.append((m["role"], b["text"]))
                elif b["type"] == "tool_use":
                    out.append(("call", (b["id"], b["name"], b["input"])))
                elif b["type"] == "image":
                    out.append(("image", b["source"]["data"]))
                elif b["type"] == "tool_result":
                    out.append(("result", (b["tool_use_id"], b.get("content", ""))))
                else:
                    out.append(("thinking", json.dumps(b, sort_keys=True)))
    elif path == "/v1/chat/completions":
        for m in body["messages"]:
            if m["role"] == "tool":
                out.append(("result", (m["tool_call_id"], m["content"])))
            elif m["role"] != "system":
                if isinstance(m["content"], list):
                    out.append((m["role"], m["content"][0]["text"]))
                elif m["content"]:
                    out.append((m["role"], m["content"]))
                for c in m.get("tool_calls", []):
                    out.append(("call", (c["id"], c["function"]["name"], json.loads(c["function"]["arguments"]))))
    else:
        for i in body["input"]:
            if i["type"] == "message":
                out.append((i["role"], i["content"][0]["text"]))
            elif i["type"] == "function_call":
                out.append(("call", (i["call_id"], i["name"], json.loads(i["arguments"]))))
            elif i["type"] == "function_call_output":
                out.append(("result", (i["call_id"], i["output"])))
            else:
                out.append(("thinking", json.dumps(i, sort_keys=True)))
    return out


def anthropic(text, calls, n):
    def e(o):
        return ("event: %s\ndata: %s\n\n" % (o["type"], json.dumps(o))).encode()

    def delta(i, **d):
        return e({"type": "content_block_delta", "index": i, "delta": d})
    i = 0
    yield e({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 100, "output_tokens": 1, "cache_read_input_tokens": 40}}})
    if calls:
        yield e({"type": "content_block_start", "index": i, "content_block": {"type": "thinking", "thinking": "", "signature": ""}})
        yield delta(i, type="thinking_delta", thinking="thought \u00e9 %d" % n)
        yield delta(i, type="signature_delta", signature="sig/%d+=" % n)
        yield e({"type": "content_block_stop", "index": i})
        i += 1
    yield e({"type": "content_block_start", "index": i, "content_block": {"type": "text", "text": ""}})
    for k in range(0, len(text), 7):
        yield delta(i, type="text_delta", text=text[k:k + 7])
        yield e({"type": "ping"})
    yield e({"type": "content_block_stop", "index": i})
    for k, (name, args) in enumerate(calls):
        i += 1
        yield e({"type": "content_block_start", "index": i, "content_block": {"type": "tool_use", "id": "toolu_%d_%d" % (n, k), "name": name, "input": {}}})
        args = json.dumps(args)
        for j in range(0, len(args), 9):
            yield delta(i, type="input_json_delta", partial_json=args[j:j + 9])
        yield e({"type": "content_block_stop", "index": i})
    yield e({"type": "message_delta", "delta": {"stop_reason": "tool_use" if calls else "end_turn"}, "usage": {"output_tokens": 7}})
    yield e({"type": "message_stop"})


def chat(text, calls, n):
    def e(delta, why=None):
        return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": why}]}).encode() + b"\n\n"
    for k in range(0, len(text), 7):
        yield e({"content": text[k:k + 7]})
    for k, (name, args) in enumerate(calls):
        args = json.dumps(args)
        yield e({"tool_calls": [{"index": k, "id": "call_%d" % k, "type": "function", "function": {"name": name, "arguments": ""}}]})
        for j in range(0, len(args), 9):
            yield e({"tool_calls": [{"index": k, "function": {"arguments": args[j:j + 9]}}]})
    yield e({}, "tool_calls" if calls else "stop")
    yield b'data: {"choices":[],"usage":{"prompt_tokens":140,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":40}}}\n\n'
    yield b"data: [DONE]\n\n"


def responses(text, calls, n):
    def e(type, **o):
        return ("event: %s\ndata: %s\n\n" % (type, json.dumps(dict(o, type=type)))).encode()
    i = 0
    yield e("response.created", response={"usage": None})
    if calls:
        item = {"type": "reasoning", "id": "rs_%d" % n, "summary": [], "encrypted_content": "enc/%d+=" % n}
        yield e("response.output_item.added", output_index=0, item=dict(item, encrypted_content=None))
        yield e("response.output_item.done", output_index=0, item=item)
        i = 1
    yield e("response.output_item.added", output_index=i, item={"type": "message", "id": "m", "content": []})
    for k in range(0, len(text), 7):
        yield e("response.output_text.delta", output_index=i, delta=text[k:k + 7])
    yield e("response.output_item.done", output_index=i, item={"type": "message", "id": "m", "content": [{"type": "output_text", "text": text}]})
    for k, (name, args) in enumerate(calls):
        i += 1
        item = {"type": "function_call", "id": "fc_%d" % k, "call_id": "call_%d_%d" % (n, k), "name": name}
        args = json.dumps(args)
        yield e("response.output_item.added", output_index=i, item=dict(item, arguments=""))
        for j in range(0, len(args), 9):
            yield e("response.function_call_arguments.delta", output_index=i, delta=args[j:j + 9])
        yield e("response.output_item.done", output_index=i, item=dict(item, arguments=args))
    yield e("response.completed", response={"usage": {"input_tokens": 140, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 40}}})


EVENTS = {"/v1/messages": anthropic, "/v1/chat/completions": chat, "/v1/responses": responses}
