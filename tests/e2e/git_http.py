#!/usr/bin/env python3
"""Repositories over HTTP, as a server with basic auth has them: git http-backend behind a small server on loopback.

git_http.py FOLDER USER PASSWORD: prints its port, then serves FOLDER until it is killed. Below /open/ nobody is asked who
they are; below /ns/NAME/ the repository shows its namespace NAME alone; /slow/ never answers."""
import base64, http.server, os, subprocess, sys, threading

folder, user, password = sys.argv[1:4]
wanted = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def body(self):
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while n := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(n))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def answer(self, code, headers, body):
        self.send_response(code)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def serve(self):
        body = self.body()
        path, _, query = self.path.partition("?")
        if path.startswith("/slow/"):
            threading.Event().wait()
        env = dict(os.environ, GIT_PROJECT_ROOT=folder, GIT_HTTP_EXPORT_ALL="1", REMOTE_ADDR="127.0.0.1")
        if path.startswith("/open/"):
            path = path[5:]
        elif self.headers.get("Authorization") != wanted:
            return self.answer(401, [("WWW-Authenticate", 'Basic realm="git"')], b"")
        if path.startswith("/ns/"):
            _, _, env["GIT_NAMESPACE"], path = path.split("/", 3)
            path = "/" + path
        env.update(PATH_INFO=path, QUERY_STRING=query, REQUEST_METHOD=self.command, REMOTE_USER=user,
                   CONTENT_TYPE=self.headers.get("Content-Type", ""), CONTENT_LENGTH=str(len(body)),
                   HTTP_CONTENT_ENCODING=self.headers.get("Content-Encoding", ""),
                   HTTP_GIT_PROTOCOL=self.headers.get("Git-Protocol", ""), GIT_PROTOCOL=self.headers.get("Git-Protocol", ""))
        out = subprocess.run(["git", "http-backend"], input=body, env=env, stdout=subprocess.PIPE).stdout
        head, _, rest = out.partition(b"\r\n\r\n")
        headers = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n") if ": " in line]
        code = next((int(v.split()[0]) for k, v in headers if k == "Status"), 200)
        self.answer(code, [h for h in headers if h[0] not in ("Status", "Content-Length")], rest)

    do_GET = do_POST = serve

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
