# A stand-in for Ollama: /v1/models and /v1/chat/completions, on a port that is written to the file named. It calls a tool
# once, then answers.
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

asked = []


class Ollama(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path != "/v1/models":
            return self.answer(404, "text/plain", b"404 page not found")
        self.answer(200, "application/json", b'{"object":"list","data":[{"id":"qwen3:8b","object":"model","owned_by":"library"}]}')

    def do_POST(self):
        r = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked.append(r["model"])
        open(sys.argv[1] + ".asked", "w").write(" ".join(asked))
        if self.path != "/v1/chat/completions" or "tool_choice" in r or "max_completion_tokens" in r:
            return self.answer(400, "application/json", b'{"error":{"message":"unknown field","type":"invalid_request_error"}}')
        last = r["messages"][-1]
        if last["role"] == "tool":
            deltas = [{"role": "assistant", "content": "It says "}, {"content": last["content"].strip() + "."}]
        elif "test" in last["content"]:
            deltas = [{"role": "assistant", "content": "There is none."}]
        else:
            deltas = [{"role": "assistant", "content": "", "reasoning": "I look."},
                      {"role": "assistant", "content": "", "tool_calls": [{"id": "call_x1", "index": 0, "type": "function", "function": {
                          "name": "bash", "arguments": json.dumps({"command": "cat a.txt"})}}]}]
        out = [{"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": r["model"], "choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
        out.append({"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": "tool_calls" if "tool_calls" in deltas[-1] else "stop"}]})
        out.append({"id": "chatcmpl-1", "choices": [], "usage": {"prompt_tokens": 140, "completion_tokens": 7, "total_tokens": 147}})
        self.answer(200, "text/event-stream", b"".join(b"data: " + json.dumps(o).encode() + b"\n\n" for o in out) + b"data: [DONE]\n\n")


server = ThreadingHTTPServer(("127.0.0.1", 0), Ollama)
open(sys.argv[1], "w").write("%d\n" % server.server_port)
server.serve_forever()
