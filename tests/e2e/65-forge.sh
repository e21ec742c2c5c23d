#!/bin/sh
# Pull requests without gh: the gateway opens them with a token that only it holds, at GitHub, GitLab and Gitea alike.
# time limit: 900 s
. "$(dirname "$0")/../lib.sh"
have openssl || { skip forge "there is no openssl"; exit 0; }
kinds="github gitlab gitea"

# A PATH with all that there is but gh.
mkdir "$T/bin"
old=$(echo "$PATH" | tr : ' ')
for dir in $old; do
	for file in "$dir"/*; do
		name=${file##*/}
		[ "$name" = gh ] || [ -e "$T/bin/$name" ] || ln -s "$file" "$T/bin/$name"
	done
done
PATH=$T/bin

openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test-ca -keyout "$T/ca.key" -out "$T/ca.pem" 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj /CN=forge -keyout "$T/forge.key" -out "$T/forge.csr" 2>/dev/null
printf 'subjectAltName=IP:127.0.0.1\n' >"$T/san"
openssl x509 -req -in "$T/forge.csr" -CA "$T/ca.pem" -CAkey "$T/ca.key" -CAcreateserial -days 2 -extfile "$T/san" -out "$T/forge.pem" 2>/dev/null

mkdir "$T/asked" "$T/remotes"
number=1
for kind in $kinds; do
	python3 "$ROOT/tests/e2e/git_forge.py" $kind "$T/forge.pem" "$T/forge.key" "token-of-$kind" "$T/asked" >"$T/$kind.port" 2>"$T/$kind.log" &
	own $!
	number=$((number + 1))
	mkdir -p "$T/remotes/$kind/team"
	git init -q --bare -b main "$T/remotes/$kind/team/app.git"
	git -C "$T/remotes/$kind/team/app.git" config http.receivepack true
	python3 "$ROOT/tests/e2e/git_http.py" "$T/remotes/$kind" - - 127.0.0.$number >"$T/$kind.git" 2>/dev/null &
	own $!
	echo 127.0.0.$number >"$T/$kind.host"
done
for kind in $kinds; do
	within 20 test -s "$T/$kind.port" -a -s "$T/$kind.git" || { not_ok "$kind: its servers start"; exit 1; }
done

start || exit 1
within 20 test -s "$M/gateway/policy" || { not_ok "the gateway is there"; exit 1; }
{
	cat "$M/gateway/policy"
	for kind in $kinds; do echo "forge $(cat "$T/$kind.host") $kind url https://127.0.0.1:$(cat "$T/$kind.port") ca $T/ca.pem"; done
} >"$T/policy"
cat "$T/policy" >"$M/gateway/policy" || not_ok "the policy takes forges"

# ship KIND NAME TITLE: a session that does something, and ships it as a pull request.
ship() {
	project=$T/$1.app
	[ -d "$project" ] || {
		git clone -q "$T/remotes/$1/team/app.git" "$project" 2>/dev/null
		(
			cd "$project" && git checkout -q -B main && echo "$1" >name && git add . && git commit -qm first && git push -q origin main &&
				git remote set-url origin "http://$(cat "$T/$1.host"):$(cat "$T/$1.git")/team/app.git" && git fetch -q
		) || exit 1
	}
	cat >"$T/$2.script" <<-END
		{"tools":[{"name":"bash","input":{"command":"echo $2 >$2; git add .; git commit -qm '$3'"}}]}
		{"text":"done\n\n\`\`\`plan\n- [x] $2\n\`\`\`\n"}
		{"tools":[{"name":"bash","input":{"command":"git rebase -q refs/berthfs/base"}}]}
		{"text":"SHIP-READY"}
		{"text":"SHIP-READY"}
	END
	printf -- '---\nproject: %s\nmodel: script:%s\nship: pr\n---\ngo\n' "$project" "$T/$2.script" >"$S/new/$2" || not_ok "$2: a session"
	timeout 200 cat "$S/$2/wait/idle" >/dev/null
	echo >"$S/$2/ship" && timeout 200 cat "$S/$2/wait/shipped" >/dev/null
	branch=sandbox-$(cat "$S/$2/id")-$(git -C "$project" rev-parse "sandbox/$(cat "$S/$2/id")" | cut -c 1-12)
}

ship github no-key "no key yet"
contains "without a key: the branch is pushed" "$(cat "$S/no-key/ship")" "landed $branch"
contains "without a key: error says how to give one" "$(cat "$S/no-key/error")" "gateway/keys/127.0.0.2"
equal "without a key: nothing was asked" "$(ls "$T/asked")" ""

for kind in $kinds; do
	echo "token-of-$kind" >"$M/gateway/keys/$(cat "$T/$kind.host")" || not_ok "$kind: its key"
	ship $kind "$kind-one" "mend it"
	contains "$kind: the link is in ship" "$(cat "$S/$kind-one/ship")" "landed $branch $(git -C "$project" rev-parse "sandbox/$(cat "$S/$kind-one/id")") https://$kind.example/team/app/1"
	equal "$kind: first it is looked for" "$(sed -n '1s/[ ?].*//p' "$T/asked/$kind.1")" GET
	asked=$(cat "$T/asked/$kind.2")
	contains "$kind: title" "$asked" '"title":"mend it"'
	contains "$kind: the plan is in the text" "$asked" "- [x] $kind-one"
	contains "$kind: from" "$asked" "\"$branch\""
	contains "$kind: to" "$asked" '"main"'
	# the same once more finds the one that is open
	echo pr >"$S/$kind-one/ship"
	timeout 200 cat "$S/$kind-one/wait/shipped" >/dev/null
	contains "$kind: one that is open is found" "$(cat "$S/$kind-one/ship")" "https://$kind.example/team/app/1"
	equal "$kind: by another look, and no more" "$(sed -n '1s/[ ?].*//p' "$T/asked/$kind.3") $(ls "$T/asked" | grep -c "^$kind")" "GET 3"
done

ship github refused broken
contains "the forge's own no, in words" "$(cat "$S/refused/error")" "No commits between main and x"
echo wrong-token >"$M/gateway/keys/$(cat "$T/gitlab.host")"
ship gitlab wrong "wrong key"
contains "a key that is not good" "$(cat "$S/wrong/error")" "is the key still good?"
check "no key in words" sh -c "! cat '$S'/*/error '$S'/*/log '$M/events' '$M/gateway/ledger' '$T/state/berthfs/'*.log 2>/dev/null | grep -e wrong-token -e token-of-"
echo 'token-of-gitlab' >"$M/gateway/keys/$(cat "$T/gitlab.host")"

# ---- killed when the forge has opened it and has not said so: the next gateway finds it, even where a second one could be opened
ctl=$ROOT/build/tests/gwctl
posts() { grep -l '^POST' "$T/asked/"* | xargs -r grep -l "$1" | wc -l; }
is_posted() { [ -e "$T/asked/open" ]; } # and is in the forge's list
victim() { "$ctl" status 2>/dev/null | sed -n 's/^pid //p'; }
(
	within 150 is_posted && kill -9 "$(victim)" && touch "$T/was-killed"
) &
ship github killed "lax slow"
wait $!
check "it was killed in the middle" test -e "$T/was-killed"
rm -f "$T/asked/open"
touch "$T/asked/go"
contains "a gateway that is killed in the middle: the ship has its link" "$(cat "$S/killed/ship" "$S/killed/error")" "landed $branch $(git -C "$project" rev-parse "sandbox/$(cat "$S/killed/id")") https://github.example/team/app/"
equal "and it was opened once" "$(posts 'lax slow')" 1
# the tree's file follows the gateway's a moment later
check "the ledger says that the first one's end is not known" within 60 grep -q '"result":"unknown"' "$M/gateway/ledger"
check "and that it was found" within 60 grep -q '"result":"found".*"url":"https://github.example/team/app/' "$M/gateway/ledger"
rm "$T/asked/go"

# ---- the route is the daemon's alone
box=$T/box.sock
sandbox=$("$ctl" mint sandbox 1 app internet "$box")
engine=$("$ctl" mint engine 1 app internet "")
good='{"host":"127.0.0.2","project":"team/app","head":"main","base":"main","title":"x","body":""}'
# post SOCKET TOKEN BODY [PATH]: the status, and the rule if it is refused
post() {
	curl -s --max-time 40 -o "$T/answer" -w '%{http_code} ' --unix-socket "$1" -H "x-api-key: $2" -H 'Content-Type: application/json' -d "$3" "http://gateway${4:-/forge/pull-request}"
	sed -n 's/.*berthfs gateway, rule \([a-z.]*\)).*/\1/p' "$T/answer"
}
daemon=$T/run/berthfs/gateway.sock
before=$(ls "$T/asked" | wc -l)
equal "not on a sandbox's socket" "$(post "$box" "$sandbox" "$good")" "403 route"
equal "not with a sandbox's token" "$(post "$daemon" "$sandbox" "$good")" "403 token.channel"
equal "not without a token" "$(post "$daemon" none "$good")" "401 token"
equal "not for a project that climbs" "$(post "$daemon" "$engine" "$(echo "$good" | sed 's,team/app,team/../admin,')")" "400 body"
equal "not for a project with a query" "$(post "$daemon" "$engine" "$(echo "$good" | sed 's,team/app,team/app?x=1,')")" "400 body"
equal "not for another host" "$(post "$daemon" "$engine" "$(echo "$good" | sed 's,127.0.0.2,169.254.169.254,')")" "403 forge"
equal "not by another path" "$(post "$daemon" "$engine" "$good" "/forge/pull-request?x")" "403 route"
equal "not twice the same field" "$(post "$daemon" "$engine" "$(echo "$good" | sed 's,"title",\"host\":\"x\"\,&,')")" "400 body"
equal "nothing was sent for these" "$(ls "$T/asked" | wc -l)" "$before"

# ---- the address that comes back is shown in terminals and pages: a plain one, or none
n=0 refused=
while [ $n -lt 18 ]; do
	got=$(post "$daemon" "$engine" "$(echo "$good" | sed "s,\"main\",\"odd-$n\",;s,\"x\",\"odd $n\",")")
	[ "$got" = "502 forge.refused" ] && ! grep -qe evil -e javascript -e passwd "$T/answer" && refused="$refused $n" || echo "# $n: $got $(cat "$T/answer")"
	# and where it stands in the list of those that are open
	got=$(post "$daemon" "$engine" "$(echo "$good" | sed "s,\"main\",\"odd-$n\",")")
	[ "$got" = "502 forge.refused" ] || { refused="$refused not-in-list"; echo "# $n in the list: $got $(cat "$T/answer")"; }
	n=$((n + 1))
done
equal "an address that is not plain is no pull request's" "$refused" " $(seq -s ' ' 0 17)"
check "nor is it in the ledger" sh -c "! grep -e evil.example -e javascript: -e /etc/passwd '$M/gateway/ledger'"
contains "a plain one is" "$(post "$daemon" "$engine" "$(echo "$good" | sed 's,"main","plain",')"; cat "$T/answer")" "https://github.example/team/app/"

told() { grep '"target":"/forge/pull-request"' "$M/gateway/ledger" >"$T/ledger" && [ "$(grep -c '"verdict":"allowed"' "$T/ledger")" -ge 47 ]; }
within 30 told
equal "the ledger has each, with its session" "$(jq -r 'select(.verdict == "allowed") | .forge_project + " " + .provider' "$T/ledger" | sort | uniq -c | tr -s ' ' | tr '\n' ';')" \
	" 42 team/app 127.0.0.2; 3 team/app 127.0.0.3; 2 team/app 127.0.0.4;"
check "and those that were refused" grep -q '"verdict":"denied".*"rule":"key"' "$T/ledger"
check "and how they ended" grep -q '"kind":"outcome".*"url":"https://gitea.example/team/app/1"' "$M/gateway/ledger"
check "the chain holds" sh -c "'$BERTHFS' ledger verify >/dev/null"
