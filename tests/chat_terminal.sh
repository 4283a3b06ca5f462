#!/bin/bash
# `onebit chat` as a person meets it: typed into a terminal of tmux, read from its screen.
# usage: chat_terminal.sh PROGRAM PASTED_WORDS. Exit status 77 without tmux, unless CI is set.
set -euo pipefail

program=$1
n_words=$2
if ! command -v tmux > /dev/null; then
    echo "chat_terminal: tmux is not installed; nothing was checked" >&2
    [ -n "${CI:-}" ] && exit 1
    exit 77
fi

folder=$(mktemp -d)
export TMUX_TMPDIR=$folder TERM=xterm
n_started=0 # every chat has a server of its own: one that is ending takes no new session
terminal() { tmux -u -L "$n_started" -f /dev/null "$@"; }
trap 'terminal kill-server 2> /dev/null || true; rm -rf "$folder"' EXIT

screen() { terminal capture-pane -p -J -S - -t chat | sed 's/ *$//'; }
keys() { terminal send-keys -t chat "$@"; }
say() { keys -l "$1" && keys Enter; }

fail() {
    echo "chat_terminal: $1; the screen:" >&2
    screen >&2 || true
    exit 1
}

# Poll until a check of the screen holds: long for slow machines, at once over when the chat has ended.
wait_until() { # wait_until WHAT CHECK...
    local i what=$1
    shift
    for ((i = 0; i < 1000; i++)); do
        screen > "$folder/screen"
        "$@" && return
        grep -q 'ended with' "$folder/screen" && break
        sleep 0.2
    done
    fail "$what did not come"
}
on_screen() { grep -q -- "$1" "$folder/screen"; }
at_prompt() { [ "$(sed '/^$/d' "$folder/screen" | tail -n 1)" = ">" ]; }
wait_for() { wait_until "'$1'" on_screen "$1"; }
wait_for_prompt() { wait_until "the prompt" at_prompt; }

start() { # start ENVIRONMENT... -- ARGUMENTS: a chat in a fresh terminal
    local environment=()
    while [ "$1" != -- ]; do
        environment+=("$1")
        shift
    done
    shift
    terminal kill-server 2> /dev/null || true
    n_started=$((n_started + 1))
    printf -v line '%q ' env -u NO_COLOR "${environment[@]}" "$program" chat "$@"
    terminal new-session -d -s chat -x 100 -y 40 "$line; echo ended with \$?; sleep 600"
    wait_for_prompt
}

paste_file() { terminal load-buffer "$1" && terminal paste-buffer -p -t chat; }

# --------------------------------------------------------------------------------------------------
echo "a first turn, commands, a second turn, Ctrl-D"
start -- --temp 0
say 'Hello!'
wait_for '^Do you need help with anything else?$'
wait_for_prompt
say '/help'
wait_for '^/stats '
say 'Who are you?'
wait_for 'a small model'
wait_for_prompt
say '/stats'
wait_for '^last turn: prompt 40 tokens, 22 reused, 18 read'
wait_for 'finish: stop'
say '/nonsense'
wait_for 'unknown command /nonsense'
keys C-d
wait_for 'ended with 0$'

echo "an answer streams, Ctrl-C stops it, the conversation goes on"
start -- --temp 0 --ignore-eos
say 'Hello!'
wait_for '^Do you need'
first=$(screen)
for ((i = 0; i < 600; i++)); do
    [ "$(screen)" != "$first" ] && break
    sleep 0.2
done
[ "$(screen)" != "$first" ] || fail "the answer does not stream"
keys C-c
wait_for_prompt
say '/stats'
wait_for 'finish: cancelled'
wait_for ' 1 turns'
say 'Who are you?'
sleep 1
keys C-c
wait_for_prompt
say '/stats'
wait_for ' 2 turns'
grep '^last turn' "$folder/screen" | tail -n 1 | grep -q ' [1-9][0-9]* reused' ||
    fail "the stopped answer was read again"

echo "at the prompt Ctrl-C ends the program"
keys C-c
wait_for 'ended with 130'

echo "$n_words pasted words are one message, line ends and all"
awk -v n="$n_words" 'BEGIN {
    split("the city of London is in north and it was built by people from far away", word, " ")
    for (i = 1; i <= n; i++) printf "%s%s", word[1 + i * i % 16], i % 50 ? " " : "\n"
}' > "$folder/paste"
start -- --temp 0 -n 8 --ctx 16384
paste_file "$folder/paste"
keys Enter
wait_for 'it reached its limit'
wait_for_prompt
say '/stats'
wait_for ' 1 turns'
n_prompt=$(screen | sed -n 's/^last turn: prompt \([0-9]*\) tokens.*/\1/p')
[ "$n_prompt" -gt "$n_words" ] || fail "the prompt has only $n_prompt tokens"
screen | grep -q '\] *[0-9]*%' && fail "the progress bar was not wiped"

echo "a paste that does not fit is refused, and the conversation goes on"
start -- --temp 0 --ctx 64
paste_file "$folder/paste"
keys Enter
wait_for 'do not fit: the session holds at most 64; start with a larger --ctx'
wait_for_prompt
say 'Hello!'
wait_for '^Do you need help with anything else?$'

echo "wide characters are edited whole, and a line survives a window made narrow and wide again"
start -- --temp 0 -n 4
edited() { terminal capture-pane -p -t chat | sed 's/ *$//' | grep -qx "$1"; }
keys -l '日本語もじé👍'
keys BSpace BSpace BSpace
wait_until "the line with three characters gone" edited '> 日本語も'
keys Left Left
keys -l 'ab'
wait_until "letters between wide characters" edited '> 日本ab語も'
keys C-e
keys -l ' the quick brown fox 日本語日本語日本語日本語日本語日本語日本語 jumps'
terminal resize-window -t chat -x 30 -y 40
keys BSpace
wait_until "the line in a narrow window" edited '本語日本語日本語 jump'
terminal resize-window -t chat -x 100 -y 40
keys -l ' 🦊'
keys Enter
wait_for 'it reached its limit'
wait_for_prompt
say "/save $folder/said.json"
for ((i = 0; i < 100; i++)); do [ -s "$folder/said.json" ] && break; sleep 0.1; done
grep -q '"content": "日本ab語も the quick brown fox 日本語日本語日本語日本語日本語日本語日本語 jump 🦊"' \
    "$folder/said.json" || fail "another text was said: $(cat "$folder/said.json")"

echo "a thought is dimmed, but not under NO_COLOR"
dimmed() { terminal capture-pane -p -e -t chat | grep -c $'\033\\[2m' || true; }
start -- --temp 0 --think on
say 'Hello!'
wait_for 'cab is on the way'
wait_for_prompt
[ "$(dimmed)" -gt 0 ] || fail "the thought is not dimmed"
start NO_COLOR=1 -- --temp 0 --think on
say 'Hello!'
wait_for 'cab is on the way'
wait_for_prompt
[ "$(dimmed)" -eq 0 ] || fail "NO_COLOR did not switch colours off"
say '/nonsense'
wait_for 'unknown command'
terminal capture-pane -p -e -t chat | grep -q $'\033\\[[0-9;]*[1-9]m' && fail "there are colours"
echo "chat_terminal: passed"
