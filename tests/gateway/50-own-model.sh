#!/bin/sh
# README's section about one's own model, line by line as it stands there, against a stand-in for Ollama on loopback.
# time limit: 500 s
. "$(dirname "$0")/../lib.sh"
have python3 || { skip "own model" "no python3"; exit 0; }

mkdir -p "$HOME/code" "$T/bin"
ln -s "$BERTHFS" "$T/bin/berthfs"
git clone -q "$P" "$HOME/code/app"
python3 "$ROOT/tests/gateway/ollama.py" "$T/port" &
own $!
within 10 test -s "$T/port" || { not_ok "the stand-in runs"; exit 1; }
port=$(cat "$T/port")
printf 'sandbox = dir\nsandbox.allow-dir = yes\n' >"$T/config/berthfs/config"

# As it stands there, but for the port; the first list has to say that there is nothing yet.
awk '/^## Use your own model/ { own = 1 } /^## The code/ { own = 0 } /^```/ { code = own && /^```sh/; next } code { print }' \
	"$ROOT/README.md" | sed "s/11434/$port/; s/^berthfs models/{ berthfs models || true; }/" >"$T/lines"
check "there are lines" test "$(wc -l <"$T/lines")" -gt 15
M=$HOME/berth
PATH=$T/bin:$PATH berthfs mount || exit 1
(cd "$HOME" && PATH=$T/bin:$PATH timeout 400 sh -ex "$T/lines") >"$T/said" 2>"$T/typed"
code=$?
equal "every line works" $code 0
[ $code = 0 ] || { sed 's/^/# /' "$T/said" "$T/typed"; cat "$M/error"; }
said=$(cat "$T/said")
contains "there is no key at first" "$said" "no  anthropic                    no key: echo KEY > ~/berth/gateway/keys/anthropic"
contains "the server's models are listed" "$said" "ok  ollama/qwen3:8b              free"
contains "a model answers" "$said" "It says hello."
contains "and costs nothing" "$said" "$(printf '2\t280\t14\t0\t0.000000\tollama/qwen3:8b')"
contains "another goes on" "$said" "There is none."
contains "it was asked by its name there" "$(cat "$T/port.asked")" "qwen3:8b qwen3:8b qwen3:8b"
