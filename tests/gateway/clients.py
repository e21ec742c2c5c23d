# Real clients, as npm has them (tests/clients), through the gateway with a session's token: a prompt, a tool call that
# they run, an answer. The provider is ours. Each one's output is kept in OUT, if that is set.
import os, subprocess, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import *
from shopper import Shopper

CLIENTS = os.environ["CLIENTS"]
up = Provider()
gw = Instance()
host, port = own_port()
gw.start("%s:%d" % (host, port))
gw.ctl("policy-set", data=policy(up).encode())
gw.ctl("key", "anthropic", data=KEY.encode())
token = gw.ctl("mint", "engine", "7", "app", "none", "")
URL = "http://%s:%d" % (host, port)
os.makedirs(gw.dir + "/home", exist_ok=True)
os.makedirs(gw.dir + "/desk")
env = {"PATH": CLIENTS + "/bin:" + os.environ["PATH"], "HOME": gw.dir + "/home", "LANG": "C.UTF-8", "TERM": "dumb",
       "ANTHROPIC_BASE_URL": URL, "ANTHROPIC_API_KEY": token, "OPENAI_BASE_URL": URL + "/v1", "OPENAI_API_KEY": token,
       # nothing but the gateway: whoever tries another host learns so at once
       "HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9",
       "NO_PROXY": "127.0.0.1,localhost," + host, "no_proxy": "127.0.0.1,localhost," + host}


def client(name, model, argv, path, more={}, text="Say what the command gives."):
    """Runs it; checks its answer, the tool it ran, what the provider and the ledger saw. Its output."""
    brain = Shopper(up)
    up.script[model] = lambda c, r: (up.usual if "count_tokens" in r.target else brain)(c, r)
    n, begin, rows = len(up.requests), time.monotonic(), len(gw.ledger())
    try:
        p = subprocess.run(argv, env=dict(env, **more), cwd=gw.dir + "/desk", input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
    except subprocess.TimeoutExpired as e:
        return check(name + " ends", False, (e.stdout or b"")[-1500:], (e.stderr or b"")[-1500:])
    out, words = p.stdout.decode(errors="replace"), p.stderr.decode(errors="replace")
    if os.environ.get("OUT"):
        open("%s/%s" % (os.environ["OUT"], name.replace(" ", "-").replace("/", "-")), "w").write(out + "\n---\n" + words)
    print("# %s: %.1f s, %d requests, tools %s" % (name, time.monotonic() - begin, len(up.requests) - n, brain.calls))
    betas = {b for r in up.requests[n:] for b in r.h.get("anthropic-beta", "").split(",") if b}
    if betas:
        print("# betas: " + " ".join(sorted(betas)))
    equal(name + " is refused nothing", [(r["rule"], r["target"], r["why"]) for r in gw.ledger()[rows:] if r.get("verdict") == "denied"], [])
    check(name + " answers with what its tool has given", p.returncode == 0 and "It says: " in out and "told-42" in out, p.returncode, out[-1500:], words[-1500:])
    equal(name + " ran one tool", len(brain.calls), 1)
    mine = [r for r in up.requests[n:] if "count_tokens" not in r.target]
    check(name + " asked by " + path + ", with the key that it does not have", mine and {(r.target.split("?")[0], KEY in str(r.headers), token in str(r.headers) + r.body.decode())
          for r in mine} == {(path, True, False)}, [(r.method, r.target) for r in mine])
    return out


client("claude", "claude-one", ["claude", "-p", "--output-format", "stream-json", "--verbose", "--model", "claude-one", "--dangerously-skip-permissions"],
       "/v1/messages", {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1"})

# By a model's name it chooses which betas it asks for: none may be one that the policy has off.
n, rows = len(up.requests), len(gw.ledger())
for model in ("claude-fable-5", "claude-opus-4-8", "claude-haiku-4-5"):
    p = subprocess.run(["claude", "-p", "--model", model], env=dict(env, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1", DISABLE_AUTOUPDATER="1"), cwd=gw.dir + "/desk", input=b"hello?",
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
    check("claude as it is with " + model, p.returncode == 0 and b"hello" in p.stdout, p.stdout[-500:], p.stderr[-500:])
equal("is refused nothing", [(r["rule"], r["target"], r["why"]) for r in gw.ledger()[rows:] if r.get("verdict") == "denied"], [])
print("# betas: " + " ".join(sorted({b for r in up.requests[n:] for b in r.h.get("anthropic-beta", "").split(",")})))

for kind, package, base, path in (("anthropic", "@ai-sdk/anthropic", URL + "/v1", "/v1/messages"), ("openai", "@ai-sdk/openai-compatible", URL + "/v1", "/v1/chat/completions"),
                                  ("responses", "@ai-sdk/openai", URL + "/v1", "/v1/responses")):
    model = ("claude-" if kind == "anthropic" else "gpt-") + "open-" + kind
    config = {"provider": {"berth": {"npm": package, "name": "berth", "options": {"baseURL": base, "apiKey": "{env:ANTHROPIC_API_KEY}"},
                                     "models": {model: {"name": model, "tool_call": True, "limit": {"context": 100000, "output": 8000}}}}},
              "permission": {"*": "allow"}, "autoupdate": False, "share": "disabled", "small_model": "berth/" + model}
    client("opencode " + kind, model, ["opencode", "run", "--format", "json", "-m", "berth/" + model], path,
           {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"})

client("codex", "gpt-codex", ["codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", "gpt-codex", "-c", 'web_search="disabled"', "-c", 'model_provider="berth"',
       "-c", 'model_providers.berth={name="berth",base_url="%s/v1",env_key="OPENAI_API_KEY",wire_api="responses"}' % URL, "-"], "/v1/responses")

for api, model, path in (("anthropic-messages", "claude-pi", "/v1/messages"), ("openai-completions", "gpt-pi", "/v1/chat/completions"), ("openai-responses", "gpt-pi-r", "/v1/responses")):
    folder = gw.dir + "/pi-" + api
    os.makedirs(folder)
    base = URL if api == "anthropic-messages" else URL + "/v1"
    json.dump({"providers": {"berth": {"baseUrl": base, "api": api, "apiKey": "ANTHROPIC_API_KEY", "models": [{"id": model, "name": model, "reasoning": False, "input": ["text"],
              "contextWindow": 100000, "maxTokens": 8000, "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}}]}}}, open(folder + "/models.json", "w"))
    client("pi " + api, model, ["pi", "--mode", "json", "-p", "--provider", "berth", "--model", model], path, {"PI_CODING_AGENT_DIR": folder, "PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1"})

# The two libraries: a loop of tools as their manuals show it.
LOOP = r"""
import { execFileSync } from 'node:child_process'
const run = c => execFileSync('sh', ['-c', c]).toString()
"""
ANTHROPIC = LOOP + r"""
import Anthropic from '@anthropic-ai/sdk'
const client = new Anthropic(), messages = [{ role: 'user', content: 'Say what the command gives.' }]
const tools = [{ name: 'bash', input_schema: { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] } }]
const model = 'claude-sdk'
const count = await client.messages.countTokens({ model, messages, tools })
console.log('tokens', count.input_tokens)
for (;;) {
	const m = await client.messages.stream({ model, max_tokens: 1000, messages, tools }).finalMessage()
	messages.push({ role: 'assistant', content: m.content.filter(b => b.type != 'thinking') })
	const calls = m.content.filter(b => b.type == 'tool_use')
	if (!calls.length) { console.log(m.content.map(b => b.text ?? '').join('')); break }
	messages.push({ role: 'user', content: calls.map(c => ({ type: 'tool_result', tool_use_id: c.id, content: run(c.input.command) })) })
}
"""
OPENAI = LOOP + r"""
import OpenAI from 'openai'
const client = new OpenAI(), messages = [{ role: 'user', content: 'Say what the command gives.' }]
const parameters = { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] }
for (;;) {
	const s = client.chat.completions.stream({ model: 'gpt-sdk', messages, tools: [{ type: 'function', function: { name: 'bash', parameters } }] })
	const m = (await s.finalChatCompletion()).choices[0].message
	messages.push(m)
	if (!m.tool_calls?.length) { console.log(m.content); break }
	for (const c of m.tool_calls) messages.push({ role: 'tool', tool_call_id: c.id, content: run(JSON.parse(c.function.arguments).command) })
}
"""
RESPONSES = LOOP + r"""
import OpenAI from 'openai'
const client = new OpenAI()
let input = [{ type: 'message', role: 'user', content: 'Say what the command gives.' }]
const parameters = { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] }
for (;;) {
	const s = await client.responses.create({ model: 'gpt-sdk-r', input, store: false, stream: true, tools: [{ type: 'function', name: 'bash', parameters, strict: false }] })
	const items = []
	for await (const e of s) if (e.type == 'response.output_item.done') items.push(e.item)
	const calls = items.filter(i => i.type == 'function_call')
	input.push(...items.filter(i => i.type != 'reasoning'))
	if (!calls.length) { console.log(items.filter(i => i.type == 'message').map(i => i.content[0].text).join('')); break }
	for (const c of calls) input.push({ type: 'function_call_output', call_id: c.call_id, output: run(JSON.parse(c.arguments).command) })
}
"""
os.symlink(CLIENTS + "/node_modules", gw.dir + "/desk/node_modules")
for name, model, text, path in (("@anthropic-ai/sdk", "claude-sdk", ANTHROPIC, "/v1/messages"), ("openai chat", "gpt-sdk", OPENAI, "/v1/chat/completions"),
                                ("openai responses", "gpt-sdk-r", RESPONSES, "/v1/responses")):
    script = gw.dir + "/desk/%s.mjs" % model
    open(script, "w").write(text)
    out = client(name, model, ["node", script], path)
    if path == "/v1/messages":
        check(name + " counts tokens", "tokens 5\n" in out, out)
gw.ctl("stop")
sys.exit(failed)
