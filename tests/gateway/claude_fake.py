#!/usr/bin/python3
# Stands in for Claude Code in a test, and is hostile: what it does is told by the name of its model.
import json, os, socket, sys, time

if sys.argv[1:3] == ["auth", "status"]:
    print(json.dumps({"loggedIn": True, "authMethod": "fake\n\x1b[31m"}))
    sys.exit(0)
how = sys.argv[sys.argv.index("--model") + 1] if "--model" in sys.argv else "well"
out = sys.stdout.buffer
TOOLS = ["mcp__berthfs__" + t for t in ("read", "write", "edit", "bash")]


def raw(b):
    out.write(b)
    out.flush()


def say(o):
    raw(json.dumps(o).encode() + b"\n")


def event(o):
    say({"type": "stream_event", "event": o, "parent_tool_use_id": None})


def hear():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def init(tools=TOOLS):
    say({"type": "system", "subtype": "init", "tools": tools})


def answer(text, calls=(), stop=None, end=True, result=True):
    event({"type": "message_start", "message": {"id": "m", "model": "fake", "usage": {"input_tokens": 5, "output_tokens": 1}}})
    event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": text}})
    event({"type": "content_block_stop", "index": 0})
    for i, (name, args) in enumerate(calls):
        event({"type": "content_block_start", "index": i + 1, "content_block": {"type": "tool_use", "id": "toolu_%d" % i, "name": name, "input": {}}})
        event({"type": "content_block_delta", "index": i + 1, "delta": {"type": "input_json_delta", "partial_json": args}})
        event({"type": "content_block_stop", "index": i + 1})
    if end:
        event({"type": "message_delta", "delta": {"stop_reason": stop or ("tool_use" if calls else "end_turn")}, "usage": {"output_tokens": 7}})
        event({"type": "message_stop"})
    if result:
        say({"type": "result", "subtype": "success", "is_error": False, "result": ""})


def look_around():
    found = {}
    for path in ("/etc/shadow", "/home/../etc/passwd", os.environ["HOME"] + "/.ssh", os.environ["HOME"] + "/project", "/run"):
        try:
            found[path] = os.listdir(path) if os.path.isdir(path) else open(path).read(20)
        except OSError as e:
            found[path] = type(e).__name__
    for path in ("/usr/x", "/x/y", "/etc/x"):
        try:
            open(path, "w").close()
            found["write " + path] = "done"
        except OSError as e:
            found["write " + path] = "no"
    for where in (("127.0.0.1", 22), ("192.0.2.1", 443), ("1.1.1.1", 53)):
        s = socket.socket()
        s.settimeout(2)
        found["dial %s:%d" % where] = "done" if not s.connect_ex(where) else "no"
    for ask in ("CONNECT example.org:443 HTTP/1.1\r\n\r\n", "CONNECT api.anthropic.com:22 HTTP/1.1\r\n\r\n", "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
                "POST /v1/messages HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", "CONNECT a:1\r\nX: y HTTP/1.1\r\n\r\n", "CONNECT x:443 HTTP/1.1\r\nProxy-Authorization: Bearer me\r\n\r\n"):
        s = socket.create_connection(("127.0.0.1", 8118), timeout=60)
        s.sendall(ask.encode())
        try:
            found["ask " + ask.split("\r")[0]] = s.recv(12).decode()
        except OSError:
            found["ask " + ask.split("\r")[0]] = ""
    found["environment"] = sorted(k for k in os.environ if "SECRET" in k or "TOKEN" in k or "BERTH" in k)
    found["processes"] = len([d for d in os.listdir("/proc") if d.isdigit()])
    return json.dumps(found)


if how == "dies-first":
    sys.stderr.write("no such thing here\n")
    sys.exit(3)
hello = hear()
assert hello["request"]["sdkMcpServers"] == ["berthfs"]
if how == "refuses":
    say({"type": "control_response", "response": {"subtype": "error", "request_id": "berthfs", "error": "no"}})
    time.sleep(1000)
say({"type": "control_response", "response": {"subtype": "success", "request_id": "berthfs", "response": {}}})
raw(b"not json\n\n\0\xff\xfe\n{\"type\":\n[]\n\"x\"\n{\"type\":\"unheard_of\",\"x\":1}\n{\"type\":[]}\n")
while (line := hear()).get("type") != "user" or line.get("shouldQuery") is False:
    if line.get("shouldQuery") is False:
        say({"type": "result", "is_error": how == "forgets", "result": ""})
last = line["message"]["content"][0]
if last["type"] == "tool_result":
    init()
    answer("after the tool: " + str(last.get("content"))[:40])
    time.sleep(1000)

if how == "garbage":
    init()
    for i in range(3000):
        raw(os.urandom(50 + i % 300).replace(b"\n", b"x") + b"\n")
    answer("sense at last")
elif how == "flood":
    init()
    while True:
        raw((b"x" * 1000 + b"\n") * 1000)
elif how == "long-line":
    raw(b'{"type":"system","x":"')
    while True:
        raw(b"y" * 1000000)
elif how == "own-tools":
    init(TOOLS + ["Bash"])
    answer("x", [("Bash", '{"command":"touch ran"}')])
elif how == "no-tools":
    init([])
    answer("x")
elif how == "runs":
    init()
    say({"type": "control_request", "request_id": "r", "request": {"subtype": "mcp_message", "server_name": "berthfs", "message": {
        "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "bash", "arguments": {"command": "touch ran"}}}}})
    answer("I have run it")
elif how == "may-i":
    init()
    say({"type": "control_request", "request_id": "r", "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "touch ran"}}})
    assert hear()["response"]["response"]["behavior"] == "deny"
    answer("I have run it")
elif how == "asks":
    init()
    for i, subtype in enumerate(("set_model", "rewind_files", "elicitation", "mcp_message", None, "x" * 5000)):
        say({"type": "control_request", "request_id": "r%d" % i, "request": {"subtype": subtype, "message": {"method": ["x"]}}})
        got = hear()["response"]
        assert got["request_id"] == "r%d" % i
    say({"type": "control_request", "request_id": "x" * 5000, "request": {}})
    say({"type": "control_request", "request": {}})
    answer("asked enough")
elif how == "hangs":
    init()
    answer("half of", end=False, result=False)
    time.sleep(1000)
elif how == "dies":
    init()
    answer("half of", end=False, result=False)
    raw(b'{"type":"stream_event","event":{"type":"content_blo')
    sys.exit(1)
elif how == "twice":
    init()
    answer("the first", result=False)
    answer("the second")
elif how == "deep":
    init()
    raw(b'{"type":"stream_event","event":' + b"[" * 100000 + b"]" * 100000 + b"}\n")
    event({"type": "message_start", "message": {"usage": {"input_tokens": -5, "output_tokens": 1e30}}})
    event({"type": "content_block_delta", "index": 99, "delta": {"type": "text_delta", "text": "lost"}})
    event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "found \ud800 \u0000"}})
    event({"type": "message_delta", "delta": {"stop_reason": "x" * 1000}})
    event({"type": "message_stop"})
    say({"type": "result", "is_error": False})
elif how == "calls":
    init()
    answer("calling", [("mcp__berthfs__bash", '{"command":"echo ran >> ran"}'), ("mcp__berthfs__bash", '{"command":'), ("mcp__other__bash", '{"command":"echo WRONG >> ran"}'), ("", "{}")])
elif how == "error":
    init()
    say({"type": "assistant", "message": {"model": "<synthetic>", "content": [{"type": "text", "text": "bad \x1b[31m\nnews"}]}, "error": "x" * 999, "api_error_type": "y" * 999})
    say({"type": "result", "is_error": True, "api_error_status": 999999})
elif how == "looks":
    init()
    answer(look_around())
else:
    init()
    answer("well")
time.sleep(1000)
