# test_run_tui.sh: `driftscope run --tui` in a real terminal (tmux): the sweep in a child, its record on the screen, what it prints
# afterwards, its exit code; ended, left running, resumed. Without a terminal it is an ordinary run.
. tests/cli/lib.sh

tiny=random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=128
# Hundreds of trials: it does not end by itself while a test looks.
long="-m random:llama,layers=4,hidden=256,heads=4,kv_heads=2,ffn=512,vocab=512 --batch 1,2,4,8 --repeat 200 -n 8"

# One server a terminal: the name of one that is still ending cannot be used again.
server=0
mux() { tmux -L "driftscope-test-${dir##*.}-$server" -f /dev/null "$@"; }

# in_terminal ARGUMENT...: starts driftscope in a terminal of 100 columns; its exit code comes to $dir/code.
in_terminal() {
    {
        echo "trap : INT"
        echo "cd '$dir'; echo \$\$ >shell"
        printf "'%s' " "$driftscope" "$@"
        echo
        echo "echo \$? >code.new; mv code.new code; sleep 1000"
    } >"$dir/go.sh"
    server=$((server + 1))
    mux new-session -d -x 100 -y 30 "TERM=screen sh '$dir/go.sh'"
    trap 'mux kill-server 2>/dev/null || true' EXIT
}
screen() { mux capture-pane -p -S -200 2>/dev/null; }

# until_shown TEXT: up to a minute.
until_shown() { until_matched "$(printf '%s' "$1" | sed 's/[][\\.*^$]/\\&/g')"; }
until_matched() {
    i=0
    while ! screen | grep -q -e "$1"; do
        i=$((i + 1))
        [ $i -lt 600 ] || {
            say "the screen never showed: $1; it is:"
            screen >&2
            return 1
        }
        sleep 0.1
    done
}
until_ended() {
    i=0
    while [ ! -s "$dir/code" ]; do
        i=$((i + 1))
        [ $i -lt 900 ] || {
            say "it never ended; the screen is:"
            screen >&2
            return 1
        }
        sleep 0.1
    done
    code=$(cat "$dir/code")
}
ended_with() {
    until_ended
    [ "$code" -eq "$1" ] && return 0
    say "exit code $code, want $1; the screen is:"
    screen >&2
    return 1
}

test_the_sweep_ends_by_itself() {
    need tmux
    # shellcheck disable=SC2086
    in_terminal run -m $tiny --kernels pinned --batch 1,4 --threads 1 -o a.h5 --tui
    until_shown "the writer has ended"
    mux send-keys q
    ended_with 0
    until_shown "same: no difference over"
    ds show "$dir/a.h5"
    expect 0
}

test_ended_from_the_screen_and_resumed() {
    need tmux
    # shellcheck disable=SC2086
    in_terminal run $long -o a.h5 --tui
    until_matched "following, [1-9]"
    mux send-keys Q
    until_shown "end the sweep?"
    mux send-keys x # stays
    until_matched "following, [1-9]"
    mux send-keys Q
    until_shown "end the sweep?"
    mux send-keys y
    ended_with 130
    until_shown "are saved; go on with"
    ds show "$dir/a.h5"
    [ "$code" -le 1 ]
    mux kill-server
    rm "$dir/code"
    in_terminal run -m random:llama,layers=4,hidden=256,heads=4,kv_heads=2,ffn=512,vocab=512 --resume a.h5 --tui
    until_matched "following, [1-9]"
    mux send-keys Q
    until_shown "end the sweep?"
    mux send-keys n
    until_shown "the sweep goes on; Ctrl-C ends it"
    mux send-keys C-c
    ended_with 130
}

test_an_error_before_the_record() {
    need tmux
    in_terminal run -m no-such-model --tui
    ended_with 2
    until_shown "no-such-model"
}

test_no_record_to_show() {
    ds run -m $tiny --tui --no-record
    expect 2
    has "$dir/err" "--no-record"
}

# Without a terminal: the run as always, and a note.
test_without_a_terminal() {
    ds run -m $tiny --kernels pinned --batch 1,4 --threads 1 -o "$dir/a.h5" --tui
    expect 0
    has "$dir/err" "--tui needs a terminal"
    has "$dir/out" "same: no difference over"
    [ -s "$dir/a.h5" ]
}

# A signal to the program alone reaches the sweep: what is finished is saved.
test_a_signal_to_the_program() {
    need tmux
    need pgrep
    # shellcheck disable=SC2086
    in_terminal run $long -o a.h5 --tui
    until_matched "following, [1-9]"
    kill -TERM "$(pgrep -P "$(cat "$dir/shell")")"
    until_ended
    [ "$code" -ge 128 ]
    until_shown "are saved; go on with"
    ds show "$dir/a.h5"
    [ "$code" -le 1 ]
}

run_tests
