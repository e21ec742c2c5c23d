#!/usr/bin/env python3
"""The pull-request calls of a forge, as their public descriptions have them, over TLS on loopback.

git_forge.py KIND CERT KEY TOKEN FOLDER: prints its port. KIND: github, gitlab, gitea. Pull requests are kept in memory; each
request's head and body go to FOLDER/KIND.N. Opening one for a branch that has one is refused as that forge does it. One whose
title has "slow" is open before its answer, as the file FOLDER/open says, and that waits for the file FOLDER/go; with "lax" a second one is not refused; "odd N" is said to be
at an address that is none."""
import http.server, itertools, json, os, ssl, sys, time, urllib.parse

kind, cert, key, token, folder = sys.argv[1:6]
at = f"https://{kind}.example/team/app/"
ODD = [at + "\x1b]8;;https://evil.example\x07", at + "\x1b[2J", at + "1\nlanded main", at + "1\tx", at + "1 2", at + "\u00e9", at + "\u202egnp.exe", at + "\x7f", at + '"><b>', at + "<b",
       at + "x" * 600, "javascript:alert(1)", "file:///etc/passwd", "//evil.example/", "", None, 7, ["https://x.example/"]]
numbers, opened = itertools.count(1), []


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, code, value):
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with open(f"{folder}/{kind}.{next(numbers)}", "wb") as f:
            f.write(f"{self.command} {self.path}\n{self.headers}".encode() + body)
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if self.headers.get("Authorization") != "Bearer " + token:
            return self.answer(401, {"message": "Bad credentials " + str(self.headers.get("Authorization"))})
        path = {"github": "/api/v3/repos/team/app/pulls", "gitlab": "/api/v4/projects/team%2Fapp/merge_requests",
                "gitea": "/api/v1/repos/team/app/pulls"}[kind]
        if url.path != path:
            return self.answer(404, {"message": "Not Found"})
        names = ("source_branch", "target_branch") if kind == "gitlab" else ("head", "base")
        if self.command == "GET":
            return self.answer(200, [p for p in opened if self.fits(p, query)])
        asked = json.loads(body)
        if not asked["title"].startswith("lax") and any(p["pair"] == [asked[n] for n in names] for p in opened):
            if kind == "github":
                return self.answer(422, {"message": "Validation Failed", "errors": [{"message": "A pull request already exists for team:x."}]})
            return self.answer(409, {"message": ["Another open merge request already exists"]})
        if asked["title"] == "broken":
            return self.answer(422, {"message": "Validation Failed", "errors": [{"message": "No commits between main and x"}]})
        n = len(opened) + 1
        one = {"pair": [asked[n] for n in names], "head": {"ref": asked[names[0]]}, "base": {"ref": asked[names[1]]}}
        one["web_url" if kind == "gitlab" else "html_url"] = ODD[int(asked["title"][4:])] if asked["title"].startswith("odd ") else f"{at}{n}"
        opened.append(one)
        if "slow" in asked["title"]:
            open(folder + "/open", "w").close()
        while "slow" in asked["title"] and not os.path.exists(folder + "/go"):
            time.sleep(0.05)
        self.answer(201, one)

    def fits(self, p, query):
        if kind == "github":
            return query.get("head") == "team:" + p["pair"][0] and query.get("base") == p["pair"][1]
        if kind == "gitlab":
            return [query.get("source_branch"), query.get("target_branch")] == p["pair"]
        return True

    do_GET = do_POST = serve

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
